#include "cli/report_page.h"

#include <algorithm>
#include <cmath>

#include "check/text.h"
#include "cli/drawing.h"
#include "cli/problem_options.h"
#include "cli/report_charts.h"
#include "cli/report_style.h"
#include "generator/cost/dense.h"

namespace trigen::cli {
namespace {

using cache::FleetAnswer;

constexpr size_t kMostHoles = 200;  // listed by name; the squares show all

std::string tile(const std::string& number, const std::string& what) {
  return "<div class=\"tile\"><b>" + svg::escape(number) + "</b><span>" + svg::escape(what) +
         "</span></div>\n";
}

std::string card(const std::string& heading, const std::string& inside, const char* more = "") {
  if (inside.empty()) return {};
  return std::string("<section class=\"card ") + more + "\"><h3>" + svg::escape(heading) + "</h3>\n" +
         inside + "</section>\n";
}

std::string key_of(const char* style, const char* what) {
  return "<span>" +
         svg::picture(13, 13, what, svg::rect(1, 1, 11, 11, format("class=\"key %s\" rx=\"2\"", style))) +
         what + "</span>";
}

double geometric_mean(const ReportKind& kind) {
  double sum = 0;
  size_t count = 0;
  for (const ReportRow& row : kind.rows) {
    if (!row.measured || row.against_dense() <= 0) continue;
    sum += std::log(row.against_dense());
    ++count;
  }
  return count > 0 ? std::exp(sum / static_cast<double>(count)) : 0;
}

std::string head(const ReportData& data) {
  size_t measured = 0, predicted = 0, holes = 0;
  bool devices = false;
  double longest = 0;
  for (const ReportKind& kind : data.kinds) {
    measured += kind.count(FleetAnswer::kMeasured);
    predicted += kind.count(FleetAnswer::kPredicted);
    devices = devices || !kind.kind.device.empty();
    holes += kind.holes();
    for (const ReportRow& row : kind.rows) longest += row.elapsed_s;
  }
  std::string compilers;
  for (const std::string& each : data.compilers) compilers += (compilers.empty() ? "" : ", ") + each;
  std::string out =
      "<h1>" + svg::escape(data.path.substr(data.path.rfind('/') + 1)) + "</h1>\n<p class=\"soft\">" +
      format("%zu records, %zu kernels, %s; ", data.records, data.binaries,
             format_bytes(static_cast<double>(data.bytes)).c_str()) +
      svg::escape(data.made_by + "; " + compilers) + "<br><code>sha256 " + data.digest + "</code><br>made " +
      svg::escape(data.made) + " by <code>" + svg::escape(data.command) + "</code></p>\n";
  out +=
      "<div class=\"tiles\">" + tile(std::to_string(data.problems.size()), "problems asked") +
      tile(std::to_string(data.kinds.size()), data.kinds.size() == 1 ? "kind of device" : "kinds of device") +
      tile(std::to_string(measured), "measured choices") +
      tile(std::to_string(predicted), "predicted choices") +
      tile(std::to_string(holes),
           devices ? "holes: not measured on that device" : "holes: without any choice");
  if (longest > 0) out += tile(format("%.1f h", longest / 3600), "of measuring, one device after the other");
  return out + "</div>\n";
}

std::string coverage(const ReportData& data) {
  std::string bars, squares, holes;
  size_t listed = 0, missing = 0;
  for (const ReportKind& kind : data.kinds) {
    const size_t answered = data.problems.size() - kind.holes();
    bars += "<span>" + svg::escape(kind.name) + "</span>" + coverage_bar(kind, data.problems.size()) +
            "<span>" + format("%zu / %zu", answered, data.problems.size()) + "</span>\n";
    squares += card(kind.name, coverage_squares(kind, data.problems));
    const FleetAnswer enough = kind.kind.device.empty() ? FleetAnswer::kPredicted : FleetAnswer::kMeasured;
    for (size_t i = 0; i < data.problems.size(); ++i) {
      if (kind.answers[i] >= enough) continue;
      ++missing;
      if (++listed > kMostHoles) continue;
      holes += "<tr><td><code>" + svg::escape(short_problem(data.problems[i])) + "</code></td><td>" +
               svg::escape(kind.name) + "</td><td>" + word_of(kind.answers[i], kind.kind) + "</td></tr>\n";
    }
  }
  std::string out =
      "<h2>What is answered</h2>\n<p>Measured on the very device, or a neighbour's measurement (near), or "
      "the model's "
      "choice (predicted), or nothing. A kind of device has a hole where it has no measurement of its own; "
      "one of "
      "no device, where there is no prediction.</p>\n<div class=\"keys\">" +
      key_of("measured", "measured") + key_of("near", "near") + key_of("predicted", "predicted") +
      key_of("nothing", "nothing") + "</div>\n";
  out += card("By kind of device", "<div class=\"pair\">" + bars + "</div>") + squares;
  if (!holes.empty())
    out += card(
        format("Holes: %zu", missing),
        "<div class=\"scroll\"><table><thead><tr><th>problem</th><th>kind of device</th><th>instead</th></tr>"
        "</thead><tbody>" +
            holes + "</tbody></table></div>" +
            (missing > kMostHoles ? format("<p class=\"soft\">and %zu more: <code>trigen cache status</code> "
                                           "lists them</p>",
                                           missing - kMostHoles)
                                  : ""),
        "long");
  return out;
}

std::string rooflines(const ReportData& data) {
  std::string charts;
  for (const ReportKind& kind : data.kinds) charts += card(kind.name, roofline_chart(kind));
  if (charts.empty()) return {};
  return "<h2>Roofline</h2>\n<p>Each choice under what the chip allows: the memory's slope on the left, the "
         "arithmetic of "
         "its type on top. Work and bytes are the triangle's alone. Circles are forward, squares grad_input, "
         "triangles "
         "grad_weight, diamonds the others; hollow ones are predictions.</p>\n" +
         charts;
}

std::string against_dense(const ReportData& data) {
  std::string charts;
  bool estimated = false;
  for (const ReportKind& kind : data.kinds) {
    const double mean = geometric_mean(kind);
    const bool real = std::any_of(kind.rows.begin(), kind.rows.end(),
                                  [](const ReportRow& r) { return !r.dense_peer.empty(); });
    estimated |= std::any_of(kind.rows.begin(), kind.rows.end(),
                             [](const ReportRow& r) { return r.dense_peer.empty(); });
    std::string chart = dense_chart(kind);
    if (!chart.empty() && mean > 0)
      chart += format("<p class=\"soft\">Geometric mean of what was measured: %.2f%s.</p>", mean,
                      real ? "" : ", beside estimates of dense");
    charts += card(kind.name, chart, "long");
  }
  if (charts.empty()) return {};
  return "<h2>Speed against dense</h2>\n<p>How many times as fast as the dense product that does the same "
         "with the masked half "
         "multiplied too." +
         (estimated
              ? format(" est.: none was measured beside it, and dense is the estimate that <code>trigen "
                       "tune</code> prints; from %.2f to %.2f (a prediction: %.2f to %.2f) time both.",
                       1 / kSureEstimated, kSureEstimated, 1 / kSurePredicted, kSurePredicted)
              : "") +
         "</p>\n" + charts;
}

std::string energy(const ReportData& data) {
  std::string charts;
  for (const ReportKind& kind : data.kinds) charts += card(kind.name, energy_chart(kind), "long");
  return "<h2>Energy</h2>\n" +
         (charts.empty()
              ? "<p>No record says what a run takes; <code>trigen tune --objective energy</code> measures it "
                "where the GPU has a counter.</p>\n"
              : "<p>Of the whole GPU over one run of many.</p>\n" + charts);
}

std::string search_row(const ReportRow& row) {
  std::string over;
  for (const auto& [why, count] : row.passed_over)
    over += (over.empty() ? "" : ", ") + format("%zu ", count) + why;
  return "<tr><td><code>" + svg::escape(short_problem(row.text)) + "</code><br><span class=\"soft\">" +
         svg::escape(row.candidate) + "</span></td><td class=\"n\">" + format_seconds(row.seconds) +
         (row.measured ? "" : "<br><span class=\"soft\">predicted</span>") + "</td><td class=\"n\">" +
         format("%.0f %%", 100 * row.share_of_roof()) + "</td><td class=\"n\">" +
         (row.space > 0 ? format("%zu of %zu", row.tried, row.space) : "-") + "</td><td>" +
         svg::escape(over) + "</td><td>" + search_line(row) + "</td><td class=\"n\">" +
         (row.expected_loss >= 0 ? format("%.1f %%", 100 * row.expected_loss) : "-") + "</td></tr>\n";
}

std::string searches(const ReportData& data) {
  std::string out =
      "<h2>Choices, and how they were found</h2>\n<p>Of the limit: the time that no kernel beats over the "
      "choice's. Tried: built, and "
      "run where there was a device. Expected loss: of the choice's time, what the best of the candidates "
      "that were not "
      "timed would save on average, if the model is as far off for them as for those that were.</p>\n";
  for (const ReportKind& kind : data.kinds) {
    std::string rows;
    for (const ReportRow& row : kind.rows) rows += search_row(row);
    if (rows.empty()) continue;
    out += card(kind.name,
                "<div class=\"scroll\"><table><thead><tr><th>problem and choice</th><th "
                "class=\"n\">time</th><th class=\"n\">"
                "of the limit</th><th class=\"n\">tried</th><th>passed over</th><th>best over time</th><th "
                "class=\"n\">"
                "expected loss</th></tr></thead><tbody>" +
                    rows + "</tbody></table></div>",
                "long");
  }
  return out;
}

}  // namespace

std::string report_page(const ReportData& data) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\"><title>" +
         svg::escape(data.path.substr(data.path.rfind('/') + 1)) + ": trigen</title>\n<style>" +
         kReportStyle + "</style></head>\n<body><main>\n" + head(data) + coverage(data) + rooflines(data) +
         against_dense(data) + energy(data) + searches(data) +
         (data.unreadable > 0 ? format("<p class=\"soft\">%zu records are of problems or targets that this "
                                       "trigen does not know.</p>\n",
                                       data.unreadable)
                              : "") +
         "</main></body></html>\n";
}

}  // namespace trigen::cli
