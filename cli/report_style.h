// The style of a report: light, dark as the reader's system says, and paper. Measured, near, predicted and missing
// differ in lightness and outline as well as in hue.
#pragma once

namespace trigen::cli {

inline constexpr const char* kReportStyle = R"(
:root{color-scheme:light dark;--page:#f7f7f5;--card:#fff;--ink:#1c1e21;--soft:#5c6370;--rule:#e3e4e0;--grid:#e9e9e5;
--measured:#1f6feb;--near:#d98e04;--predicted:#a9bfdd;--nothing:#fff;--hole:#c9362b;--energy:#2f855a;--roof:#6b7280}
@media (prefers-color-scheme:dark){:root{--page:#15171a;--card:#1d2024;--ink:#e8e9eb;--soft:#a0a6b0;--rule:#33373d;--grid:#2a2e33;
--measured:#5b9dff;--near:#f0b23e;--predicted:#46566e;--nothing:#1d2024;--hole:#ff7b6e;--energy:#57b98a;--roof:#9aa1ac}}
@media print{:root{color-scheme:light;--page:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#bbb;--grid:#ddd;--measured:#1f6feb;--near:#d98e04;
--predicted:#a9bfdd;--nothing:#fff;--hole:#c9362b;--energy:#2f855a;--roof:#555}
body{font-size:10pt}main{max-width:none;padding:0}.card{break-inside:avoid;box-shadow:none;padding:8pt 0}section.long{break-inside:auto}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}tr{break-inside:avoid}thead{display:table-header-group}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:26px;margin:0 0 2px;letter-spacing:-.01em}h2{font-size:18px;margin:40px 0 6px}h3{font-size:15px;margin:0 0 10px;font-weight:600}
p{margin:4px 0 12px;max-width:76ch}.soft,figcaption{color:var(--soft);font-size:13.5px}code{font:12.5px/1.4 ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:16px 18px;margin:12px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 16px}.tile b{display:block;font-size:26px;font-weight:650;line-height:1.2;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto;overflow:visible}svg text{fill:var(--ink);font-size:12px}svg text.small{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--grid)}.roof{stroke:var(--roof);stroke-width:1.5}svg text.roof-text{fill:var(--roof)}
.mark{stroke:var(--card);stroke-width:1}.bar.measured,.mark.measured,.square.measured,.key.measured{fill:var(--measured)}
.bar.near,.square.near,.key.near{fill:var(--near)}.mark.predicted{fill:var(--card);stroke:var(--measured);stroke-width:1.4}
.bar.predicted,.square.predicted,.key.predicted{fill:var(--predicted)}.bar.energy{fill:var(--energy)}
.bar.nothing,.square.nothing,.key.nothing{fill:var(--nothing);stroke:var(--hole);stroke-width:1.4}
.line{fill:none;stroke:var(--measured);stroke-width:1.6}svg.spark{width:96px;height:22px}
.keys{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:13px;margin:6px 0 12px}.keys svg{display:inline-block;width:13px;height:13px;vertical-align:-2px;margin-right:5px}
.scroll,.chart{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}th{color:var(--soft);font-weight:500;white-space:nowrap}
td.n,th.n{text-align:right}tr:last-child td{border-bottom:0}td .soft{font-size:12px;overflow-wrap:anywhere}td:first-child{min-width:200px}
.pair{display:grid;grid-template-columns:minmax(190px,290px) 1fr 60px;gap:6px 14px;align-items:center;font-size:13.5px}.pair>:nth-child(3n){text-align:right;font-variant-numeric:tabular-nums}
.pair svg{height:14px;border-radius:3px}
@media (max-width:640px){main{padding:20px 12px 40px}.chart svg{min-width:640px}.pair{grid-template-columns:1fr 60px}.pair>:nth-child(3n+1){grid-column:1/-1}}
)";

}  // namespace trigen::cli
