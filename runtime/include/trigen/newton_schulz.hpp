// Newton-Schulz iterations over the C interface: matrices with their singular values brought near 1, as Muon takes them.
// Header-only, C++17, made of trigen_plan_*, and trigen_memory_* for the coefficients of one launch.
//
//   trigen::NewtonSchulzOptions options;
//   options.count = 84, options.rows = 2048, options.columns = 6144;
//   trigen::NewtonSchulz iterations(runtime, options);       // makes plans: not during a capture
//   iterations.run(x, y, workspace, stream);                 // workspace: iterations.workspace_size() bytes
//
// An object serves `count` contiguous matrices of one shape, one behind the other, in one launch also anywhere; a list of
// several shapes is an object each, which may share a workspace on one stream. A matrix with more rows than columns counts
// as its transpose and is read as it lies. run() launches, and neither allocates nor synchronises: it may be captured into a
// graph.
//
// Not done here, in any form: X comes with singular values of at most 1. X / |X| (Frobenius norm) has them.
//
// An iteration is X <- (a I + b A + c A A) X with A = X X^T. The products within the brackets are symmetric: gram makes
// half of each. The one with X is not: forward makes it of the bracket's two triangles, one launch after the other. Of small
// matrices newton_schulz makes all steps in one launch; it leaves X undivided here, too.
#ifndef TRIGEN_NEWTON_SCHULZ_HPP
#define TRIGEN_NEWTON_SCHULZ_HPP

#include <trigen/trigen_memory.h>
#include <trigen/trigen.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trigen {

// a, b and c of one step.
using NewtonSchulzStep = std::array<float, 3>;

// Keller Jordan's, for every step.
inline constexpr NewtonSchulzStep kJordan = {3.4445f, -4.7750f, 2.0315f};

// "The Polar Express" (arXiv 2505.16932, Algorithm 1), a step each, with its safety factor of 1.01 for all but the last.
inline std::vector<NewtonSchulzStep> polar_express(int steps) {
  static constexpr double kSteps[][3] = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                         {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                         {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                         {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                         {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
                                         {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
                                         {1.8750014808534479, -1.2500016453999487, 0.3750001645474248}};
  std::vector<NewtonSchulzStep> made;
  for (int step = 0; step < steps; ++step) {
    if (step >= 7) {
      made.push_back({1.875f, -1.25f, 0.375f});
      continue;
    }
    const double* const of = kSteps[step];
    constexpr double kSafety = 1.01, kCubed = kSafety * kSafety * kSafety;
    made.push_back({static_cast<float>(of[0] / kSafety), static_cast<float>(of[1] / kCubed),
                    static_cast<float>(of[2] / (kCubed * kSafety * kSafety))});
  }
  return made;
}

struct NewtonSchulzOptions {
  int64_t count = 1, rows = 0, columns = 0;
  // Of X, the result and, but for kOneLaunch, all between, which is f16 there. f16 has three bits more than bf16, and the
  // range: X is at most 1.
  trigen_dtype dtype = TRIGEN_F16;
  std::vector<NewtonSchulzStep> steps = std::vector<NewtonSchulzStep>(5, kJordan);
  // kGram iterates on R = X X^T, with X multiplied and R made anew every three steps, in which 16 bits of R lose what is
  // small in X. kOneLaunch is all steps at once, of matrices with a side of at most 128 on sm_80 and later, of 256 on sm_90a; what it cannot
  // take is refused. kAuto: kOneLaunch of f16 and bf16 where suits_one_launch and the GPU has it (f32 stays f32 between
  // products); else kGram where the longer side is 1.25 times the shorter one.
  enum Form { kAuto, kClassic, kGram, kOneLaunch } form = kAuto;
};

class NewtonSchulz {
 public:
  // What one launch takes, 256 rows on Hopper, 128 elsewhere.
  static constexpr bool fits_one_launch(int64_t m, int64_t steps) noexcept { return m <= 256 && steps <= 64; }
  // Whether it makes n matrices of m x k, m <= k, faster than products do; clusters of thread blocks: Hopper and later. The
  // rule of Python's suits_one_launch.
  static constexpr bool suits_one_launch(int64_t n, int64_t m, int64_t k, bool clusters,
                                         bool hopper) noexcept {
    if (m > 128) return hopper && k <= 4 * m && (n >= 64 || (n >= 32 && m * k <= 160 * 512));
    return clusters ? n >= 8 || k <= 4096 : n >= 64 || k <= (m <= 64 ? 4096 : 1024);
  }

  // Makes the plans: slow where they have to be compiled. One launch has coefficients in device memory, which is given back
  // by the destructor: the runtime outlives the object, graphs that captured run() do not, neither constructor nor destructor
  // is called during a capture, and a context that was made current for the one is for the other.
  NewtonSchulz(const Runtime& runtime, const NewtonSchulzOptions& options, int device = TRIGEN_CURRENT_DEVICE)
      : steps_(options.steps),
        n_(options.count),
        m_(std::min(options.rows, options.columns)),
        k_(std::max(options.rows, options.columns)),
        tall_(options.rows > options.columns) {
    if (n_ < 1 || m_ < 1 || steps_.empty())
      refuse("count, rows, columns and the number of steps are " + std::to_string(n_) + ", " +
             std::to_string(options.rows) + ", " + std::to_string(options.columns) + " and " +
             std::to_string(steps_.size()) + "; allowed: 1 or more of each");
    for (const NewtonSchulzStep& step : steps_)
      if (step[2] == 0) refuse("c of a step is 0; allowed: any other number, such as kJordan's");
    form_ = options.form;
    if (form_ == kOneLaunch ||
        (form_ == kAuto && options.dtype != TRIGEN_F32 && fits_one_launch(m_, step_count()) &&
         suits_one_launch(n_, m_, k_, true, true)))
      plan_one_launch(runtime, options.dtype, device);
    if (form_ == kOneLaunch) return;
    if (form_ == kAuto) form_ = 4 * k_ >= 5 * m_ ? kGram : kClassic;
    const auto plan = [&](trigen_op op, int64_t columns, auto change) {
      Problem problem(op, options.dtype, 1, m_, columns);
      problem.H = n_;
      change(problem);
      Plan made = runtime.plan(problem, device);
      plan_bytes_ = std::max(plan_bytes_, rounded(made.workspace_size()));
      return made;
    };
    element_ = options.dtype == TRIGEN_F32 ? 4 : 2;
    const auto of_x = [&](Problem& problem) {
      const int64_t row = (tall_ ? m_ : k_) * element_;
      problem.layout = tall_ ? TRIGEN_BDT : TRIGEN_BTD;
      problem.align = std::min<int64_t>(16, row & -row);
    };
    square_of_x_ = plan(TRIGEN_GRAM, k_, [&](Problem& p) { of_x(p), p.mirror = 1; });
    polynomial_ = plan(TRIGEN_GRAM, m_, [&](Problem& p) { of_square(p), p.mirror = p.residual = 1; });
    if (form_ == kGram && steps_.size() > 1)
      product_ = plan(TRIGEN_GRAM, m_, [&](Problem& p) { of_square(p), p.mirror = 1; });
    lower_ = plan(TRIGEN_FORWARD, k_, of_x);
    if (m_ > 1)
      upper_ = plan(TRIGEN_FORWARD, k_,
                    [&](Problem& p) { of_x(p), p.fill = TRIGEN_UPPER, p.diag = 1, p.residual = 1; });
  }

  // kClassic, kGram or kOneLaunch.
  NewtonSchulzOptions::Form form() const noexcept { return form_; }

  // Bytes of device memory that each run needs, aligned to 16 bytes; of one launch often 0.
  size_t workspace_size() const noexcept {
    if (form_ == kOneLaunch) return one_launch_.workspace_size();
    return plan_bytes_ + squares() * square_bytes() + (multiplications() > 1 ? matrix_bytes() : 0);
  }

  // X [count, rows, columns] read, y of the same shape written, both aligned to 16 bytes; y overlaps nothing. Asynchronous on
  // a stream of the plans' context; errors as Plan::run.
  void run(const void* x, void* y, void* workspace, void* stream = nullptr) const {
    if (form_ == kOneLaunch) return launch(tensor(x), tensor(y), workspace, stream);
    Run of{*this, static_cast<char*>(workspace), stream};
    char* const first = of.space + plan_bytes_;
    void *r = first, *z = first + square_bytes(), *q = first + 2 * square_bytes(),
         *t = first + 3 * square_bytes();
    void* const other = first + squares() * square_bytes();
    int left = multiplications();
    // The last one writes to y.
    const auto multiply = [&](const void* by) {
      void* const to = --left % 2 == 0 ? y : other;
      of.multiply(by, x, to);
      x = to;
    };
    bool has_q = false;
    for (size_t step = 0; step < steps_.size(); ++step) {
      const bool anew = form_ != kGram || step % kRestart == 0;
      if (anew && step > 0) multiply(form_ == kGram ? q : z), has_q = false;
      if (anew) of.gram(square_of_x_, x, x, r, of.strides());
      of.gram(polynomial_, r, r, z, {}, r, &steps_[step]);
      if (form_ != kGram) continue;
      if (has_q) {
        of.gram(product_, q, z, t);
        std::swap(q, t);
      }
      if (step + 1 < steps_.size() && (step + 1) % kRestart != 0) {
        of.gram(product_, r, z, t);
        of.gram(product_, t, z, r);
      }
      if (!has_q) std::swap(q, z), has_q = true;
    }
    multiply(form_ == kGram ? q : z);
  }
  // The same of `count` matrices [rows, columns] that lie anywhere, kOneLaunch alone: x and y are arrays of pointers in device
  // memory, which stay until the kernel has run; each pointer is aligned to 16 bytes.
  template <class X, class Y>
  void run(X* const* x, Y* const* y, void* workspace, void* stream = nullptr) const {
    if (form_ != kOneLaunch)
      refuse(std::string("run() is given arrays of pointers, form() is ") +
             (form_ == kGram ? "kGram" : "kClassic") +
             "; allowed: kOneLaunch, of a side of at most 128 on sm_80 and later, 256 on sm_90a; copy the "
             "matrices together");
    launch(pointers(x), pointers(y), workspace, stream);
  }

 private:
  using Form = NewtonSchulzOptions::Form;
  static constexpr Form kAuto = Form::kAuto, kGram = Form::kGram, kClassic = Form::kClassic,
                        kOneLaunch = Form::kOneLaunch;
  static constexpr int kRestart = 3;

  // Leaves kAuto to products where the GPU has no such kernel, or has it without clusters and is faster by products. That is
  // known of a plan alone; one that cannot be made says nothing of products.
  void plan_one_launch(const Runtime& runtime, trigen_dtype dtype, int device) {
    Problem problem(TRIGEN_NEWTON_SCHULZ, dtype, n_, m_, k_);
    problem.K = step_count();
    problem.layout = tall_ ? TRIGEN_BDT : TRIGEN_BTD;
    const trigen_status status = runtime.try_plan(problem, device, &one_launch_);
    const bool products = status != TRIGEN_OK && !suits_one_launch(n_, m_, k_, false, true);
    if (form_ == kAuto && (status == TRIGEN_UNSUPPORTED || products)) return;
    check(status);
    const trigen_plan_info info = one_launch_.describe();
    const int target = std::atoi(info.target + 3);  // behind "sm_"
    if (form_ == kAuto && !suits_one_launch(n_, m_, k_, target >= 90, target == 90)) {
      one_launch_ = Plan();
      return;
    }
    form_ = kOneLaunch;
    std::vector<float> numbers;
    for (const NewtonSchulzStep& step : steps_) numbers.insert(numbers.end(), step.begin(), step.end());
    numbers.push_back(-1);  // X is not divided
    trigen_runtime* const memory = runtime.get();
    const int ordinal = info.device_ordinal;
    const size_t bytes = numbers.size() * sizeof(float);
    void* made = nullptr;
    check(trigen_memory_allocate(memory, ordinal, bytes, &made));
    numbers_.reset(made, [memory, ordinal](void* of) { trigen_memory_free(memory, ordinal, of); });
    check(trigen_memory_write(memory, ordinal, made, numbers.data(), bytes));
  }

  void launch(trigen_tensor x, trigen_tensor y, void* workspace, void* stream) const {
    one_launch_.run(Args().x(x).w(numbers_.get()).y(y).workspace(workspace, workspace_size()), stream);
  }

  // What the launches of one run share.
  struct Run {
    const NewtonSchulz& of;
    char* space;
    void* stream;

    // Matrices one behind the other.
    trigen_tensor strides() const {
      const int64_t row = of.tall_ ? of.m_ : of.k_, head = of.m_ * of.k_;
      return {nullptr, of.n_ * head, head, row};
    }
    trigen_tensor at(trigen_tensor view, const void* data) const {
      view.data = const_cast<void*>(data);
      return view;
    }
    void gram(const Plan& plan, const void* a, const void* b, void* d, trigen_tensor view = {},
              const void* c = nullptr, const NewtonSchulzStep* factors = nullptr) const {
      if (view.row == 0) view = {nullptr, of.n_ * of.m_ * of.m_, of.m_ * of.m_, of.m_};
      Args args;
      args.y(at(view, a)).x(at(view, b)).w(d).workspace(space, plan.workspace_size());
      if (c != nullptr) args.residual(c);
      if (factors != nullptr)
        args.gamma = (*factors)[0], args.beta = (*factors)[1], args.alpha = (*factors)[2];
      plan.run(args, stream);
    }
    // y = Q X of a symmetric Q.
    void multiply(const void* q, const void* x, void* y) const {
      const trigen_tensor to = at(strides(), y);
      Args args;
      args.x(at(strides(), x)).w(q).y(to).workspace(space, of.lower_.workspace_size());
      of.lower_.run(args, stream);
      if (!of.upper_) return;
      args.residual(to).workspace(space, of.upper_.workspace_size());
      of.upper_.run(args, stream);
    }
  };

  static void refuse(const std::string& text) {
#if defined(__cpp_exceptions)
    throw Error(TRIGEN_BAD_REQUEST, text);
#else
    std::abort();
#endif
  }
  void of_square(Problem& problem) const {
    const int64_t row = m_ * element_;
    problem.align = std::min<int64_t>(16, row & -row);
  }
  // Every part of the workspace begins at a multiple of 256 bytes.
  static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }
  size_t square_bytes() const { return rounded(static_cast<size_t>(n_ * m_ * m_ * element_)); }
  size_t matrix_bytes() const { return rounded(static_cast<size_t>(n_ * m_ * k_ * element_)); }
  // R and Z; Q and one more in Gram form.
  size_t squares() const { return form_ == kGram ? 4 : 2; }
  int step_count() const { return static_cast<int>(steps_.size()); }
  // How often X is multiplied.
  int multiplications() const {
    const int steps = step_count();
    return form_ == kGram ? (steps + kRestart - 1) / kRestart : steps;
  }

  std::vector<NewtonSchulzStep> steps_;
  int64_t n_, m_, k_, element_ = 2;
  bool tall_;
  Form form_ = kAuto;
  size_t plan_bytes_ = 0;
  Plan square_of_x_, polynomial_, product_, lower_, upper_;
  Plan one_launch_;
  std::shared_ptr<void> numbers_;  // on the device: the steps' coefficients, then eps
};

}  // namespace trigen

#endif  // TRIGEN_NEWTON_SCHULZ_HPP
