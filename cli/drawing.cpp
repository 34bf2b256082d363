#include "cli/drawing.h"

#include "check/text.h"

namespace trigen::svg {
namespace {

std::string element(const std::string& name, const std::string& head, const std::string& attributes,
                    const std::string& title) {
  const std::string start = "<" + name + " " + head + (attributes.empty() ? "" : " ") + attributes;
  if (title.empty()) return start + "/>\n";
  return start + "><title>" + escape(title) + "</title></" + name + ">\n";
}

}  // namespace

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= ' ' || c == '\n')  // XML has no other control characters
      out += c;
  }
  return out;
}

std::string text(double x, double y, const std::string& text, const std::string& attributes) {
  return format("<text x=\"%.1f\" y=\"%.1f\" ", x, y) + attributes + ">" + escape(text) + "</text>\n";
}

std::string turned_text(double x, double y, double degrees, const std::string& text,
                        const std::string& attributes) {
  return format("<text transform=\"translate(%.1f %.1f) rotate(%g)\" ", x, y, degrees) + attributes + ">" +
         escape(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const std::string& attributes) {
  return element("line", format("x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", x1, y1, x2, y2),
                 attributes, "");
}

std::string rect(double x, double y, double width, double height, const std::string& attributes,
                 const std::string& title) {
  return element("rect", format("x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"", x, y, width, height),
                 attributes, title);
}

std::string circle(double x, double y, double radius, const std::string& attributes,
                   const std::string& title) {
  return element("circle", format("cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", x, y, radius), attributes, title);
}

std::string path(const std::string& d, const std::string& attributes, const std::string& title) {
  return element("path", "d=\"" + d + "\"", attributes, title);
}

std::string document(double width, double height, double font_size, const std::string& inside) {
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
             "%.0f\" "
             "font-family=\"sans-serif\" font-size=\"%g\">\n"
             "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
             width, height, width, height, font_size) +
         inside + "</svg>\n";
}

std::string picture(double width, double height, const std::string& label, const std::string& inside,
                    const std::string& attributes) {
  return format("<svg viewBox=\"0 0 %.0f %.0f\" ", width, height) + attributes +
         " role=\"img\" aria-label=\"" + escape(label) + "\">" + inside + "</svg>\n";
}

}  // namespace trigen::svg
