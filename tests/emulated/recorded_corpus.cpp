#include "recorded_corpus.h"

#include <zstd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "check/operands.h"
#include "check/workbench.h"
#include "generator/candidate.h"
#include "numerics/numbers.h"
#include "runtime/plan.h"

namespace trigen::recorded {

using nlohmann::json;

namespace {

constexpr uint64_t kSeed = 20240912;

llvm::Error bad_file(const std::string& path, const std::string& what) {
  return make_error(ErrorKind::kBadRequest, path + ": " + what + "; record the corpus anew (README.md)");
}

// Replaces what follows each %name that has a number, with or without a sign: change(last of that name,
// digits).
template <class Change>
std::string map_registers(const std::string& text, const Change& change) {
  std::map<std::string, int64_t> last;
  std::string out;
  auto is_digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (size_t at = 0; at < text.size();) {
    const size_t start = at++;
    if (text[start] == '%') {
      while (at < text.size() && text[at] >= 'a' && text[at] <= 'z') ++at;
      size_t end = at < text.size() && (text[at] == '+' || text[at] == '-') ? at + 1 : at;
      const bool numbered = at > start + 1 && is_digit(end);
      out.append(text, start, at - start);
      if (!numbered) continue;
      while (is_digit(end)) ++end;
      out += change(last[text.substr(start, at - start)], text.substr(at, end - at));
      at = end;
      continue;
    }
    out += text[start];
  }
  return out;
}

void make_integer(const TensorList& list, HostBuffers& buffers) {
  for (size_t i = 0; i < list.tensors.size(); ++i) {
    const Tensor& t = list.tensors[i];
    if (!t.read) continue;
    void* data = buffers[i].data() + t.offset_bytes;
    for (int64_t at = 0; at < t.elements; ++at) {
      const float value = load_element(t.dtype, data, at);
      if (value == value) store_element(t.dtype, data, at, std::nearbyint(3 * value));  // NaN: not an input
    }
  }
}

}  // namespace

const char* to_string(Data data) { return data == Data::kRandom ? "random" : "integer"; }

llvm::Expected<json> load_corpus(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return bad_file(path, "cannot be read");
  std::stringstream stream;
  stream << in.rdbuf();
  const std::string packed = stream.str();
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR || size > (1ull << 28))
    return bad_file(path, "is no zstd file of a sensible size");
  std::vector<uint8_t> bytes(size);
  if (ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size()) != size)
    return bad_file(path, "is damaged");
  json corpus = json::from_cbor(bytes, true, false);
  if (!corpus.is_object() || !corpus.contains("kernels")) return bad_file(path, "holds no kernels");
  return corpus;
}

llvm::Error save_corpus(const std::string& path, const json& corpus) {
  const std::vector<uint8_t> bytes = json::to_cbor(corpus);
  std::vector<char> packed(ZSTD_compressBound(bytes.size()));
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 22);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 25);  // similar kernels lie far apart
  const size_t size = ZSTD_compress2(context, packed.data(), packed.size(), bytes.data(), bytes.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size) != 0) return bad_file(path, ZSTD_getErrorName(size));
  std::ofstream out(path, std::ios::binary);
  out.write(packed.data(), static_cast<std::streamsize>(size));
  out.close();
  if (!out) return bad_file(path, "cannot be written");
  return llvm::Error::success();
}

std::string name_of(const json& kernel) {
  return kernel["target"].get<std::string>() + " " + kernel["candidate"].get<std::string>() + " " +
         kernel["problem"].get<std::string>();
}

llvm::Expected<Candidate> recorded_candidate(const json& kernel) {
  auto problem = parse_problem(kernel["problem"].get<std::string>());
  if (!problem) return problem.takeError();
  auto target = find_target(kernel["target"].get<std::string>());
  if (!target) return target.takeError();
  return parse_candidate(*problem, **target, kernel["candidate"].get<std::string>());
}

llvm::Expected<std::string> todays_hash(const json& kernel) {
  auto candidate = recorded_candidate(kernel);
  if (!candidate) return candidate.takeError();
  return render(*candidate).hash;
}

llvm::Expected<std::vector<std::string>> load_lines(const std::string& path) {
  std::ifstream in(path);
  if (!in) return bad_file(path, "cannot be read");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  return lines;
}

llvm::Expected<std::vector<SourceLine>> load_sources(const std::string& path) {
  auto lines = load_lines(path);
  if (!lines) return lines.takeError();
  std::vector<SourceLine> sources;
  for (const std::string& line : *lines) {
    SourceLine source;
    std::istringstream words(line);
    words >> source.status >> source.hash >> std::ws;
    std::getline(words, source.kernel);
    sources.push_back(std::move(source));
  }
  return sources;
}

llvm::Expected<std::vector<std::string>> missing_lines(const std::vector<std::string>& lines,
                                                       const json& corpus) {
  std::vector<std::string> missing;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string target, choice, text;
    words >> target >> choice >> text;
    auto problem = parse_problem(text);
    if (!problem) return problem.takeError();
    const llvm::StringRef wanted = choice;
    const auto is_this = [&](const json& kernel) {
      const auto made = kernel["candidate"].get<std::string>();
      const llvm::StringRef candidate = made;
      const bool fits =
          wanted.endswith(":generic")
              ? candidate.endswith(",generic") && candidate.split(':').first == wanted.split(':').first
          : wanted.contains(':') ? candidate == wanted
                                 : candidate.split(':').first == wanted;
      return fits && kernel["target"] == target && kernel["problem"] == to_string(*problem);
    };
    if (std::none_of(corpus["kernels"].begin(), corpus["kernels"].end(), is_this)) missing.push_back(line);
  }
  return missing;
}

std::string pack_ptx(const std::string& ptx) {
  return map_registers(ptx, [](int64_t& last, const std::string& text) {
    const int64_t number = std::stoll(text), distance = number - last;
    last = number;
    return (distance < 0 ? "" : "+") + std::to_string(distance);
  });
}

std::string unpack_ptx(const std::string& packed) {
  return map_registers(packed, [](int64_t& last, const std::string& text) {
    last += std::stoll(text);
    return std::to_string(last);
  });
}

llvm::Expected<KernelRun> run_kernel(const Device& device, const json& kernel, Data data) {
  KernelRun run;
  auto problem = parse_problem(kernel["problem"].get<std::string>());
  if (!problem) return problem.takeError();
  run.problem = *problem;
  const auto target_name = kernel["target"].get<std::string>();
  auto target = find_target(target_name);
  if (!target) return target.takeError();
  auto candidate = parse_candidate(*problem, **target, kernel["candidate"].get<std::string>());
  if (!candidate) return candidate.takeError();
  run.family = candidate->family->name().str();
  Binary binary;
  binary.key = {kernel["source_hash"], target_name, kernel["compiler"], ""};
  binary.entry = kernel["entry"];
  binary.ptx = unpack_ptx(kernel["ptx"]);
  auto plan = Plan::of(*candidate, std::move(binary), device, LoadFrom::kPtx);
  if (!plan) return plan.takeError();

  WorkbenchOptions bench_options;
  bench_options.seed = kSeed;
  auto bench = Workbench::create(device, *problem, bench_options);
  if (!bench) return bench.takeError();
  auto args = (*bench)->args(0, (*plan)->workspace_bytes());
  if (!args) return args.takeError();
  if (auto error = (*bench)->poison()) return error;
  run.list = (*bench)->list();
  run.inputs = (*bench)->inputs();
  if (data == Data::kInteger) {
    make_integer(run.list, run.inputs);
    const ContextScope scope(device.api(), (*bench)->context());
    for (size_t i = 0; i < run.list.tensors.size(); ++i) {
      const Tensor& t = run.list.tensors[i];
      if (!t.read) continue;
      const auto start = std::bit_cast<cuda::CUdeviceptr>((*bench)->data(0, t.role)) -
                         static_cast<cuda::CUdeviceptr>(t.offset_bytes);
      const auto result = device.api().cuMemcpyHtoD(start, run.inputs[i].data(), run.inputs[i].size());
      if (auto error = device.driver().check(result, "cuMemcpyHtoD")) return error;
    }
  }
  if (auto error = (*plan)->run(*args, (*bench)->stream())) return error;
  auto outputs = (*bench)->download();
  if (!outputs) return outputs.takeError();
  run.outputs = std::move(*outputs);
  return run;
}

std::vector<uint8_t> join(const HostBuffers& buffers) {
  std::vector<uint8_t> bytes;
  for (const auto& buffer : buffers)
    for (const std::byte byte : buffer) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

// Bit for bit where the PTX ISA fixes every rounding: a scalar kernel without an activation is a fixed
// sequence of fma.rn and cvt.rn ("Floating Point Instructions: fma", "Data Movement and Conversion
// Instructions: cvt"), and with integers no rounding happens before the output's own cvt.
//
// Elsewhere, with S the sum of |a b| over an output's n products, two devices differ by at most
//   2 n 2^-23 S         mma and wgmma: exact products, sums "with at least single precision", order and
//                       rounding unspecified ("Matrix multiply-accumulate operation using mma instruction",
//                       "Asynchronous Warpgroup Level Matrix Instructions"); each of up to n additions may
//                       truncate (2^-23), on each side
//   2^-20 (1 + S)       activations: ex2.approx 2^-22.5 to 2 ulp, rcp.approx 1 ulp, then a handful of fma
//   2 u |value|         one rounding to the output's format can go to either neighbour
// (S enters the activation's slope, at most 1.13, as a factor of 1.2.)
std::vector<std::vector<double>> allowed_difference(const KernelRun& run, Data data) {
  const Problem& p = run.problem;
  std::vector<std::vector<double>> allowed(run.list.tensors.size());
  for (size_t i = 0; i < run.list.tensors.size(); ++i)
    if (run.list.tensors[i].written) allowed[i].resize(static_cast<size_t>(run.list.tensors[i].elements));
  const bool approximate = p.epilogue.act != Activation::kNone;
  const bool scalar = run.family == "simt" || run.family == "decode";
  const bool products = !scalar && data == Data::kRandom;
  if (!approximate && !products) return allowed;

  const Operands operands(p, run.list, run.inputs);
  const int64_t columns = p.op == Op::kGradWeight ? p.T * p.K : p.B * p.D;
  std::vector<double> coefficient(static_cast<size_t>(operands.depth()));
  std::vector<double> values(static_cast<size_t>(operands.depth()));
  for (size_t i = 0; i < run.list.tensors.size(); ++i) {
    const Tensor& t = run.list.tensors[i];
    if (!t.written) continue;
    const void* out = run.outputs[i].data() + t.offset_bytes;
    const double roundoff = unit_roundoff(t.dtype);
    for (int64_t h = 0; h < p.H; ++h) {
      for (int64_t row = run.list.rows.first; row < run.list.rows.first + run.list.rows.count; ++row) {
        auto [first, last] = operands.range(row);
        if (last > first) operands.coefficients(h, row, first, last, coefficient.data());
        if (t.role == Role::kBias) {  // grad_bias: a row's sum of dy
          double sum = 0;
          for (int64_t k = 0; k < last - first; ++k) sum += std::fabs(coefficient[static_cast<size_t>(k)]);
          allowed[i][static_cast<size_t>(h * p.T + row)] =
              2 * static_cast<double>(last - first) * 0x1p-23 * sum;
          continue;
        }
        for (int64_t column = 0; column < columns; ++column) {
          if (p.op == Op::kGradWeight && !in_triangle(p, row, column / p.K)) continue;
          double sum = 0;
          if (last > first) operands.column(h, column, first, last, values.data(), 1);
          for (int64_t k = 0; k < last - first; ++k)
            sum += std::fabs(coefficient[static_cast<size_t>(k)] * values[static_cast<size_t>(k)]);
          const int64_t at = p.op == Op::kGradWeight
                                 ? weight_index(p, t, h, row, column / p.K, column % p.K)
                                 : activation_index(p, t, column / p.D, h, row, column % p.D);
          double limit = 2 * roundoff * std::fabs(load_element(t.dtype, out, at));
          if (products) limit += 1.2 * 2 * static_cast<double>(last - first + 1) * 0x1p-23 * sum;
          if (approximate) limit += 0x1p-20 * (1 + sum);
          allowed[i][static_cast<size_t>(at)] = limit;
        }
      }
    }
  }
  return allowed;
}

}  // namespace trigen::recorded
