#include "cli/report_charts.h"

#include <algorithm>
#include <cmath>

#include "check/text.h"
#include "cli/drawing.h"
#include "cli/problem_options.h"
#include "generator/ops.h"

namespace trigen::cli {
namespace {

using cache::FleetAnswer;

constexpr double kWidth = 720, kLeft = 58, kRight = 14;

std::string line_of(const char* style, double x1, double y1, double x2, double y2) {
  return svg::line(x1, y1, x2, y2, format("class=\"%s\"", style));
}

std::string chart(double width, double height, const std::string& label, const std::string& inside) {
  return "<div class=\"chart\">" + svg::picture(width, height, label, inside) + "</div>\n";
}

// Decades that hold all values, at least one.
struct Decades {
  int first = 0, last = 1;
  double at(double value, double from, double to) const {
    return from + (std::log10(value) - first) / (last - first) * (to - from);
  }
};

Decades decades_of(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return !(v > 0); }), values.end());
  if (values.empty()) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  Decades d{static_cast<int>(std::floor(std::log10(*low))), static_cast<int>(std::ceil(std::log10(*high)))};
  if (d.last <= d.first) d.last = d.first + 1;
  return d;
}

std::string flops(double rate) {
  return rate >= 1e12 ? format("%.4g TFLOP/s", rate / 1e12) : format("%.4g GFLOP/s", rate / 1e9);
}

std::string row_title(const ReportRow& row) {
  std::string text = short_problem(row.text) + "\n" + row.candidate + "\n" + format_seconds(row.seconds) +
                     (row.measured ? " measured" : " predicted") +
                     format(", %.0f %% of the chip's limit, ", 100 * row.share_of_roof()) +
                     flops(row.flop / row.seconds);
  return text;
}

// forward: circle, grad_input: square, grad_weight: triangle, what is no product of all rows: diamond.
std::string mark_at(double x, double y, const ReportRow& row) {
  const std::string style = row.measured ? "class=\"mark measured\"" : "class=\"mark predicted\"";
  const std::string title = row_title(row);
  const Op op = row.problem.op;
  if (!is_whole_product(op)) return svg::path(format("M%.1f %.1fl5 5l-5 5l-5 -5z", x, y - 5), style, title);
  if (makes_weights(op)) return svg::path(format("M%.1f %.1fl5.2 9h-10.4z", x, y - 5.5), style, title);
  if (transposes(op)) return svg::rect(x - 4, y - 4, 8, 8, style, title);
  return svg::circle(x, y, 4.5, style, title);
}

// Horizontal bars, a row each: label, bar, number.
struct Bar {
  std::string label, value, title;
  const char* style;
  double size;  // 0 to 1
};

std::string bars(const std::vector<Bar>& list, const std::string& label, double one_at = -1,
                 const std::string& one = "") {
  constexpr double kRow = 20, kText = 292, kNumber = 74;
  const double room = kWidth - kText - kNumber, height = kRow * static_cast<double>(list.size()) + 26;
  std::string out;
  if (one_at >= 0) {
    out += line_of("roof", kText + one_at * room, 14, kText + one_at * room, height - 8);
    out += svg::text(kText + one_at * room, 10, one, "class=\"small\" text-anchor=\"middle\"");
  }
  double y = 18;
  for (const Bar& bar : list) {
    out += svg::text(kText - 8, y + 13, bar.label, "class=\"small\" text-anchor=\"end\"");
    out += svg::rect(kText, y + 2, std::max(1.0, bar.size * room), 13,
                     format("class=\"bar %s\" rx=\"2\"", bar.style), bar.title);
    out += svg::text(kText + std::max(1.0, bar.size * room) + 6, y + 13, bar.value, "class=\"small\"");
    y += kRow;
  }
  return chart(kWidth, height, label, out);
}

// "fwd f16 B8 T512 D1024": a problem as short as it stays one.
std::string bar_label(const ReportRow& row) {
  std::string text = short_problem(row.text);
  std::replace(text.begin(), text.end(), ',', ' ');
  for (const char* word : {"dtype=", "epilogue="})
    if (const size_t at = text.find(word); at != std::string::npos) text.erase(at, std::string(word).size());
  text.erase(std::remove(text.begin(), text.end(), '='), text.end());
  return text.size() > 46 ? text.substr(0, 45) + "…" : text;
}

}  // namespace

const char* word_of(FleetAnswer answer, const cache::DeviceKind& kind) {
  if (answer == FleetAnswer::kMeasured) return "measured";
  if (answer == FleetAnswer::kNear) return "near";
  if (answer == FleetAnswer::kPredicted) return "predicted";
  (void)kind;
  return "nothing";
}

std::string roofline_chart(const ReportKind& kind) {
  constexpr double kHeight = 360, kTop = 16, kBottom = 44;
  std::vector<double> intensities, rates;
  std::map<double, std::set<std::string>> roofs;  // FLOP/s -> types
  double bandwidth = 0;
  for (const ReportRow& row : kind.rows) {
    if (row.flop <= 0 || row.bytes <= 0 || row.seconds <= 0) continue;
    intensities.push_back(row.flop / row.bytes);
    rates.push_back(row.flop / row.seconds);
    if (row.compute_s > 0)
      roofs[row.flop / row.compute_s].insert(
          to_string(row.problem.dtype).str() +
          (row.problem.dtype == DType::kF32 && row.problem.math != Math::kSimt
               ? " " + to_string(row.problem.math).str()
               : ""));
    if (row.memory_s > 0) bandwidth = row.bytes / row.memory_s;
  }
  if (intensities.empty() || roofs.empty() || bandwidth <= 0) return "";
  for (const auto& [rate, types] : roofs) rates.push_back(rate), intensities.push_back(rate / bandwidth);
  const Decades dx = decades_of(intensities), dy = decades_of(rates);
  const auto x = [&](double v) { return dx.at(v, kLeft, kWidth - kRight); };
  const auto y = [&](double v) { return dy.at(v, kHeight - kBottom, kTop); };
  std::string out;
  for (int d = dx.first; d <= dx.last; ++d) {
    const double v = std::pow(10, d);
    out += line_of("grid", x(v), kTop, x(v), kHeight - kBottom);
    out += svg::text(x(v), kHeight - kBottom + 16, format("%g", v), "class=\"small\" text-anchor=\"middle\"");
  }
  for (int d = dy.first; d <= dy.last; ++d) {
    const double v = std::pow(10, d);
    out += line_of("grid", kLeft, y(v), kWidth - kRight, y(v));
    out += svg::text(kLeft - 6, y(v) + 4, format("%g", v / 1e12), "class=\"small\" text-anchor=\"end\"");
  }
  out += svg::text(kWidth / 2, kHeight - 6, "FLOP of the triangle for each byte that must move",
                   "text-anchor=\"middle\"");
  out += svg::text(12, kHeight / 2, "TFLOP/s",
                   format("text-anchor=\"middle\" transform=\"rotate(-90 12 %.0f)\"", kHeight / 2).c_str());
  const double top = roofs.rbegin()->first;
  const double low = std::max(std::pow(10, dx.first), std::pow(10, dy.first) / bandwidth);
  out += line_of("roof", x(low), y(low * bandwidth), x(top / bandwidth), y(top));
  out += svg::text(x(low) + 36, y(low * bandwidth) + 8, format("%.2f TB/s", bandwidth / 1e12),
                   "class=\"small roof-text\"");
  for (const auto& [rate, types] : roofs) {
    std::string names;
    for (const std::string& type : types) names += (names.empty() ? "" : ", ") + type;
    out += line_of("roof", x(rate / bandwidth), y(rate), kWidth - kRight, y(rate));
    out += svg::text(kWidth - kRight, y(rate) - 5, names + " " + flops(rate),
                     "class=\"small roof-text\" text-anchor=\"end\"");
  }
  for (const bool measured : {false, true})  // what was measured lies on top
    for (const ReportRow& row : kind.rows)
      if (row.measured == measured && row.flop > 0 && row.bytes > 0 && row.seconds > 0)
        out += mark_at(x(row.flop / row.bytes), y(row.flop / row.seconds), row);
  return chart(kWidth, kHeight, "Roofline of " + kind.name, out);
}

std::string dense_chart(const ReportKind& kind) {
  double most = 2;
  for (const ReportRow& row : kind.rows) most = std::max(most, row.against_dense());
  std::vector<Bar> list;
  for (const ReportRow& row : kind.rows) {
    if (row.against_dense() <= 0) continue;
    const bool real = !row.dense_peer.empty();
    const double ratio = row.against_dense();
    const std::string other = real ? row.dense_peer + ", measured" : "a dense product, estimated";
    list.push_back({bar_label(row), format("%.2f", ratio) + (real ? "" : " est."),
                    row.text + "\n" + format_seconds(row.seconds) +
                        (row.measured ? " measured" : " predicted") + " beside " +
                        format_seconds(ratio * row.seconds) + ": " + other,
                    row.measured ? "measured" : "predicted", ratio / most});
  }
  if (list.empty()) return "";
  return bars(list, "Times as fast as dense, " + kind.name, 1 / most, "1");
}

std::string energy_chart(const ReportKind& kind) {
  double most = 0;
  for (const ReportRow& row : kind.rows) most = std::max(most, row.joules);
  if (most <= 0) return "";
  std::vector<Bar> list;
  for (const ReportRow& row : kind.rows)
    if (row.joules > 0)
      list.push_back({bar_label(row), format("%.3g mJ", 1e3 * row.joules),
                      row.text + format("\n%.3g mJ a run, %.0f W, %.3g GFLOP a joule", 1e3 * row.joules,
                                        row.joules / row.seconds, row.flop / row.joules / 1e9),
                      "energy", row.joules / most});
  return bars(list, "Energy of a run, " + kind.name);
}

std::string coverage_bar(const ReportKind& kind, size_t problems) {
  if (problems == 0) return "";
  std::string out;
  double x = 0;
  for (const FleetAnswer answer :
       {FleetAnswer::kMeasured, FleetAnswer::kNear, FleetAnswer::kPredicted, FleetAnswer::kNone}) {
    const size_t count = kind.count(answer);
    const double width = 400.0 * static_cast<double>(count) / static_cast<double>(problems);
    if (count == 0) continue;
    const char* const word = word_of(answer, kind.kind);
    out += svg::rect(x, 0, width, 14, format("class=\"bar %s\"", word), format("%zu %s", count, word));
    x += width;
  }
  return svg::picture(400, 14, format("%zu of %zu holes", kind.holes(), problems), out,
                      "class=\"fill\" preserveAspectRatio=\"none\"");
}

std::string coverage_squares(const ReportKind& kind, const std::vector<std::string>& problems) {
  constexpr double kStep = 15;
  constexpr size_t kColumns = 48;
  std::string out;
  for (size_t i = 0; i < problems.size(); ++i) {
    const char* const word = word_of(kind.answers[i], kind.kind);
    const size_t row = i / kColumns;
    out +=
        svg::rect(static_cast<double>(i % kColumns) * kStep + 1, static_cast<double>(row) * kStep + 1, 12, 12,
                  format("class=\"square %s\" rx=\"2\"", word), short_problem(problems[i]) + "\n" + word);
  }
  const double rows = std::ceil(static_cast<double>(problems.size()) / kColumns);
  return chart(kColumns * kStep, rows * kStep + 1, "Problems of " + kind.name, out);
}

std::string search_line(const ReportRow& row) {
  if (row.best.size() < 2) return "";
  const double end = std::max(row.elapsed_s, row.best.back().first), first = row.best.front().second,
               last = row.best.back().second;
  const auto x = [&](double s) { return end > 0 ? 2 + 92 * s / end : 2; };
  const auto y = [&](double us) { return first > last ? 3 + 16 * (1 - (us - last) / (first - last)) : 11; };
  // Times fall: the best is at the bottom.
  std::string path = format("M%.1f %.1f", x(row.best[0].first), y(first));
  for (size_t i = 1; i < row.best.size(); ++i)
    path += format("H%.1fV%.1f", x(row.best[i].first), y(row.best[i].second));
  path += format("H%.1f", x(end));
  std::string title;
  for (const auto& [at, us] : row.best)
    title += (title.empty() ? "" : "\n") + format_seconds(us * 1e-6) + format(" after %.1f s", at);
  return svg::picture(96, 22, "best over time", svg::path(path, "class=\"line\"", title), "class=\"spark\"");
}

}  // namespace trigen::cli
