// SVG (1.1, no scripts, no fonts of its own): the elements of every drawing. `attributes` are an element's further ones,
// as they are written: class="roof" stroke-width="2".
#pragma once

#include <string>

namespace trigen::svg {

std::string escape(const std::string& text);  // for XML, without control characters

std::string text(double x, double y, const std::string& text, const std::string& attributes = "");
// Turned by `degrees` around the point.
std::string turned_text(double x, double y, double degrees, const std::string& text,
                        const std::string& attributes = "");
std::string line(double x1, double y1, double x2, double y2, const std::string& attributes);
// `title` is shown where a pointer rests.
std::string rect(double x, double y, double width, double height, const std::string& attributes,
                 const std::string& title = "");
std::string circle(double x, double y, double radius, const std::string& attributes,
                   const std::string& title = "");
std::string path(const std::string& d, const std::string& attributes, const std::string& title = "");

// A file of its own, on white.
std::string document(double width, double height, double font_size, const std::string& inside);
// A picture in a page of HTML, which `label` describes.
std::string picture(double width, double height, const std::string& label, const std::string& inside,
                    const std::string& attributes = "");

}  // namespace trigen::svg
