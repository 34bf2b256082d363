#include "lab/plot.h"

#include <algorithm>
#include <string>
#include <vector>

#include "check/text.h"
#include "cli/drawing.h"
#include "generator/names.h"

namespace trigen {
namespace {

constexpr double kBar = 22, kGap = 18, kLeft = 100, kHeight = 190, kTop = 46, kLabels = 96, kRight = 24;

struct Panel {
  const TableResult* first = nullptr;
  std::vector<std::pair<std::string, std::vector<const TableResult*>>> groups;  // by label
  size_t bars = 0;
  double width() const {
    return kLeft + static_cast<double>(bars) * kBar + static_cast<double>(groups.size()) * kGap + kRight;
  }
};

std::vector<Panel> panels_of(const std::vector<TableResult>& results) {
  std::vector<Panel> panels;
  for (const TableResult& result : results) {
    auto panel = std::find_if(panels.begin(), panels.end(),
                              [&](const Panel& p) { return p.first->table == result.table; });
    if (panel == panels.end()) {
      panels.push_back({&result, {}, 0});
      panel = panels.end() - 1;
    }
    const std::string label = short_label(result.problem);
    auto group = std::find_if(panel->groups.begin(), panel->groups.end(),
                              [&](const auto& g) { return g.first == label; });
    if (group == panel->groups.end()) {
      panel->groups.push_back({label, {}});
      group = panel->groups.end() - 1;
    }
    group->second.push_back(&result);
    ++panel->bars;
  }
  return panels;
}

std::string color_of_op(const std::string& op) {
  constexpr const char* kColors[] = {"#2b6cb0", "#c05621", "#2f855a", "#805ad5"};  // by the op's number
  for (size_t i = 0; i < std::size(kColors); ++i)
    if (kOps.values[i].text == op) return kColors[i];
  return "#4a5568";
}

std::string draw_bar(const TableResult& r, double x, double base, double scale) {
  std::string out;
  const std::string op = op_of(r);
  if (r.got > 0) {
    const bool missed = r.verdict() == Verdict::kMissed;
    out +=
        svg::rect(x, base - r.got * scale, kBar - 3, r.got * scale,
                  format("fill=\"%s\" fill-opacity=\"%s\"", color_of_op(op).c_str(), missed ? "0.45" : "1"),
                  r.problem + ": " + format("%.2f", r.got) + ", " + to_string(r.verdict()));
    // at the bar's foot, where no mark is
    out += svg::text(x + (kBar - 3) / 2, base - 5, format("%.2f", r.got),
                     missed ? "text-anchor=\"middle\" font-size=\"8.5\""
                            : "text-anchor=\"middle\" font-size=\"8.5\" fill=\"white\"");
  } else {
    out += svg::text(x + (kBar - 3) / 2, base - 3, r.ran ? "runs" : "-",
                     "text-anchor=\"middle\" font-size=\"9\" fill=\"#718096\"");
  }
  if (r.asked > 0)
    out += svg::line(x - 1, base - r.asked * scale, x + kBar - 2, base - r.asked * scale,
                     "stroke=\"#1a202c\" stroke-width=\"2.5\"");
  if (r.stretch > 0)
    out += svg::line(x - 1, base - r.stretch * scale, x + kBar - 2, base - r.stretch * scale,
                     "stroke=\"#1a202c\" stroke-width=\"0.8\"");
  return out;
}

std::string draw_panel(const Panel& panel, double top) {
  double most = 1.2;
  std::vector<std::string> ops;
  for (const auto& [label, rows] : panel.groups) {
    for (const TableResult* r : rows) {
      most = std::max({most, r->got, r->asked, r->stretch});
      if (std::find(ops.begin(), ops.end(), op_of(*r)) == ops.end()) ops.push_back(op_of(*r));
    }
  }
  const double base = top + kTop + kHeight;
  const double scale = kHeight / (most * 1.08);
  const double right = panel.width() - kRight;
  std::string out =
      svg::text(kLeft, top + 16, panel.first->title.empty() ? panel.first->table : panel.first->title,
                "font-size=\"13\" font-weight=\"bold\"");
  double legend = kLeft;
  for (const std::string& op : ops) {
    out += svg::rect(legend, top + 24, 9, 9, "fill=\"" + color_of_op(op) + "\"");
    out += svg::text(legend + 13, top + 32, op);
    legend += 26 + 6.2 * static_cast<double>(op.size());
  }
  const double step = most > 6 ? 1 : most > 2.6 ? 0.5 : 0.25;
  for (int number = 0; number * step <= most * 1.05; ++number) {
    const double tick = number * step;
    out += svg::line(kLeft, base - tick * scale, right, base - tick * scale,
                     tick == 1 ? "stroke=\"#4a5568\" stroke-dasharray=\"4 3\"" : "stroke=\"#e2e8f0\"");
    out += svg::text(kLeft - 6, base - tick * scale + 3, format("%.2f", tick),
                     "text-anchor=\"end\" font-size=\"9\"");
  }
  const std::string axis = panel.first->at_most ? "time / peer's time" : "peer's time / time";
  out += svg::turned_text(58, base - kHeight / 2, -90, axis, "text-anchor=\"middle\"");
  double x = kLeft + kGap / 2;
  for (const auto& [label, rows] : panel.groups) {
    const double begin = x;
    for (const TableResult* r : rows) {
      out += draw_bar(*r, x, base, scale);
      x += kBar;
    }
    out += svg::turned_text((begin + x) / 2 + 4, base + 14, -35, label, "text-anchor=\"end\"");
    x += kGap;
  }
  return out;
}

}  // namespace

std::string plot_svg(const std::vector<TableResult>& results) {
  const std::vector<Panel> panels = panels_of(results);
  double width = 420;
  for (const Panel& panel : panels)
    width = std::max({width, panel.width(), kLeft + 8.2 * static_cast<double>(panel.first->title.size())});
  const double panel_height = kTop + kHeight + kLabels;
  const double height = 28 + static_cast<double>(panels.size()) * panel_height;
  std::string out;
  if (!results.empty()) {
    std::string libraries;
    for (const TableResult& r : results)
      if (!r.library.empty() && libraries.find(r.library) == std::string::npos) libraries += ", " + r.library;
    out += svg::text(kLeft, 18, results[0].device + ", driver " + results[0].driver + libraries,
                     "font-size=\"11\" fill=\"#4a5568\"");
  }
  double top = 28;
  for (const Panel& panel : panels) {
    out += draw_panel(panel, top);
    top += panel_height;
  }
  return svg::document(width, height, 10, out);
}

}  // namespace trigen
