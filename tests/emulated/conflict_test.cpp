// Bank conflicts of every family's kernels, counted on the emulated device, against what each may have. No
// result is wrong by a conflict, so nothing else here would notice one: the second half breaks a layout on
// purpose, by one edit of a template, and shows that the same limit refuses it. A process holds one emulated
// target, so run them by ctest (-R Conflicts), each in a process of its own.
#include <gmock/gmock.h>

#include "check/profile.h"
#include "generator/candidate.h"
#include "generator/error.h"
#include "runtime/nvrtc.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

struct Kernel {
  const char *name, *target, *problem, *candidate;
  int64_t loads = 0, stores = 0;  // conflicts: wavefronts above the least, of all launches
};

struct Edit {
  const char *kernel, *file, *from, *to;
};

void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.candidate << ' ' << kernel.problem; }
void PrintTo(const Edit& edit, std::ostream* out) { *out << edit.file; }

constexpr const char* kHalf = "forward,dtype=f16,B=2,T=256,D=64";

// The known conflicts: mma_sm70 stores sums of grad_weight into its slice two rows of a quad pair at a time, and
// simt transposes the tile that has k along its rows, four words 4 banks apart. wgmma_split_sm90's first
// launch stores the largest of its columns 4 banks apart. mma_sm80 puts gram's elements back into its slice of sums,
// eight a thread, and reads the slice by columns for the mirrored triangle. newton_schulz_sm80 puts two rows at a time into
// panels of 32 columns, whose images are padded for reads of eight. Eight lanes that read the end of a fitted tile's row and the
// beginning of the next one have the gap between them.
const Kernel kKernels[] = {
    {"mma_sm70_forward", "sm_70", kHalf,
     "mma_sm70:tile=64x64x64,warps=2x2,stages=2,splitk=1,vec=8x8x8,blocks=2"},
    {"mma_sm70_narrow", "sm_70", kHalf,
     "mma_sm70:tile=64x64x32,warps=2x2,stages=2,splitk=1,vec=8x8x8,blocks=2"},
    {"mma_sm70_rounded", "sm_70", kHalf,
     "mma_sm70:tile=128x128x32,warps=2x2,stages=2,splitk=1,vec=8x8x8,blocks=2"},
    {"mma_sm70_grad_weight", "sm_70", "grad_weight,dtype=f16,B=2,T=256,D=64",
     "mma_sm70:tile=64x64x64,warps=2x2,stages=2,splitk=1,raster=8,vec=8x8x8,blocks=2", 0, 1280},
    {"mma_sm75_forward", "sm_75", kHalf,
     "mma_sm75:tile=64x64x64,warps=2x2,stages=2,splitk=1,vec=8x8x8,blocks=2"},
    {"mma_sm75_grad_weight", "sm_75", "grad_weight,dtype=f16,B=2,T=256,D=64",
     "mma_sm75:tile=64x64x64,warps=2x2,stages=2,splitk=1,raster=8,vec=8x8x8,blocks=2"},
    {"mma_sm80_forward", "sm_80", "forward,dtype=bf16,B=2,T=256,D=64",
     "mma_sm80:tile=64x64x64,warps=2x2,stages=4,splitk=1,vec=8x8x8,blocks=4"},
    {"mma_sm80_narrow", "sm_80", "forward,dtype=bf16,B=2,T=256,D=64",
     "mma_sm80:tile=64x64x32,warps=2x2,stages=4,splitk=1,vec=8x8x8,blocks=4"},
    {"mma_sm80_grad_input_bdt", "sm_80", "grad_input,dtype=bf16,B=2,T=256,D=64,layout=bdt",
     "mma_sm80:tile=64x64x64,warps=2x2,stages=4,splitk=1,vec=8x8x8,blocks=4"},
    {"mma_sm80_grad_weight", "sm_80", "grad_weight,dtype=bf16,B=2,T=256,D=64",
     "mma_sm80:tile=64x64x64,warps=2x2,stages=4,splitk=1,raster=8,vec=8x8x8,blocks=4"},
    {"mma_sm80_gram", "sm_80", "gram,dtype=bf16,B=1,T=256,D=64,epilogue=residual+mirror",
     "mma_sm80:tile=64x64x64,warps=2x2,stages=4,splitk=1,raster=8,vec=8x8x8,blocks=4", 8680, 1280},
    {"mma_sm80_tf32_forward", "sm_80", "forward,dtype=f32,math=tf32,B=2,T=256,D=64",
     "mma_sm80:tile=64x64x32,warps=2x2,stages=4,splitk=1,vec=4x4x4,blocks=2"},
    {"mma_sm80_tf32_grad_input", "sm_80", "grad_input,dtype=f32,math=tf32,B=2,T=256,D=64",
     "mma_sm80:tile=64x64x32,warps=2x2,stages=4,splitk=1,vec=4x4x4,blocks=2"},
    {"newton_schulz", "sm_80", "newton_schulz,dtype=bf16,B=1,T=128,D=256,K=4",
     "newton_schulz_sm80:tile=128x64x16,warps=4x2,stages=2,splitk=1,vec=1x8x2"},
    {"newton_schulz_narrow", "sm_80", "newton_schulz,dtype=bf16,B=1,T=48,D=96,K=4",
     "newton_schulz_sm80:tile=64x32x16,warps=2x2,stages=1,splitk=1,vec=1x8x2", 0, 96},
    {"newton_schulz_bdt", "sm_80", "newton_schulz,dtype=f16,B=1,T=128,D=128,K=2,layout=bdt",
     "newton_schulz_sm80:tile=128x64x16,warps=4x2,stages=1,splitk=1,vec=1x8x1"},
    {"newton_schulz_cluster", "sm_90a", "newton_schulz,dtype=bf16,B=1,T=128,D=256,K=4",
     "newton_schulz_sm80:tile=128x64x16,warps=4x2,stages=1,splitk=1,vec=1x8x2,cluster=4"},
    {"newton_schulz_cluster_narrow", "sm_90a", "newton_schulz,dtype=bf16,B=1,T=96,D=256,K=4",
     "newton_schulz_sm80:tile=96x64x16,warps=2x2,stages=2,splitk=1,vec=1x8x2,cluster=2"},
    {"newton_schulz_wgmma", "sm_90a", "newton_schulz,dtype=bf16,B=1,T=256,D=128,K=2",
     "newton_schulz_sm90:tile=256x64x16,warps=8x1,stages=2,splitk=1,vec=1x8x4,blocks=1",
     8},  // R's diagonal, once
    {"newton_schulz_wgmma_cluster", "sm_90a", "newton_schulz,dtype=bf16,B=1,T=192,D=320,K=3,layout=bdt",
     "newton_schulz_sm90:tile=192x64x16,warps=12x1,stages=1,splitk=1,vec=1x8x4,cluster=2,blocks=1", 12},
    {"mma_tma_sm90_forward", "sm_90a", "forward,dtype=bf16,B=2,T=256,D=128",
     "mma_tma_sm90:tile=128x128x64,warps=4x2,stages=3,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"mma_tma_sm90_grad_input", "sm_120a", "grad_input,dtype=bf16,B=2,T=256,D=128,wdtype=f32",
     "mma_tma_sm90:tile=128x128x64,warps=2x4,stages=3,splitk=1,vec=4x8x8,cluster=1,blocks=1,weights=packed"},
    {"simt_forward", "sm_70", "forward,dtype=f32,B=2,T=256,D=64",
     "simt:tile=64x32x16,warps=2x2,stages=2,splitk=1,vec=4x4x4,blocks=4", 0, 6144},
    {"simt_grad_weight", "sm_70", "grad_weight,dtype=f32,B=2,T=256,D=64",
     "simt:tile=64x32x16,warps=2x2,stages=2,splitk=1,raster=8,vec=4x4x4,blocks=4", 0, 8960},
    {"wgmma_sm90_forward", "sm_90a", "forward,dtype=bf16,B=2,T=256,D=64,epilogue=bias+gelu",
     "wgmma_sm90:tile=128x64x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=2,blocks=1"},
    {"wgmma_sm90_f32_forward", "sm_90a", "forward,dtype=bf16,B=2,T=256,D=64,wdtype=f32",
     "wgmma_sm90:tile=128x64x64,warps=8x1,stages=5,splitk=1,vec=8x8x8,cluster=2,blocks=1"},
    {"wgmma_sm90_f32_grad_input", "sm_90a", "grad_input,dtype=bf16,B=2,T=256,D=64,wdtype=f32",
     "wgmma_sm90:tile=128x64x64,warps=8x1,stages=5,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_slices", "sm_90a", "forward,dtype=bf16,B=2,T=512,D=64,wdtype=f32,epilogue=bias",
     "wgmma_sm90:tile=64x64x64,warps=4x1,stages=4,splitk=2,vec=8x8x8,cluster=2,blocks=1"},
    {"wgmma_sm90_grad_weight", "sm_90a", "grad_weight,dtype=bf16,B=2,T=256,D=64",
     "wgmma_sm90:tile=128x128x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_brought_rows", "sm_90a", "grad_weight,dtype=bf16,B=2,T=256,D=65",
     "wgmma_sm90:tile=128x128x64,warps=8x1,stages=5,splitk=1,vec=1x1x8,cluster=1,blocks=1"},
    {"wgmma_sm90_diagonals", "sm_90a", "grad_weight,dtype=bf16,B=2,T=256,D=64,w=toeplitz,epilogue=bias",
     "wgmma_sm90:tile=128x128x64,warps=8x1,stages=6,splitk=2,vec=8x8x1,cluster=1,blocks=1"},
    {"wgmma_sm90_numbers", "sm_90a", "forward,dtype=bf16,B=2,T=256,D=64,w=toeplitz",
     "wgmma_sm90:tile=128x64x64,warps=8x1,stages=5,splitk=1,vec=1x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_numbers_grad_input", "sm_90a", "grad_input,dtype=bf16,B=2,H=2,T=256,D=64,w=toeplitz",
     "wgmma_sm90:tile=128x64x64,warps=8x1,stages=5,splitk=1,vec=1x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_gram", "sm_90a", "gram,dtype=bf16,B=1,T=256,D=64,epilogue=residual+mirror",
     "wgmma_sm90:tile=128x128x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_gram_slice_alone", "sm_90a", "gram,dtype=bf16,B=1,T=256,D=64,epilogue=residual+mirror",
     "wgmma_sm90:tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_gram_fitted", "sm_90a", "gram,dtype=bf16,B=1,T=256,D=64,epilogue=residual+mirror",
     "wgmma_sm90:tile=128x144x64,warps=8x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1", 112},
    {"wgmma_sm90_gram_fitted_64", "sm_90a", "gram,dtype=f16,B=1,T=256,D=64,epilogue=mirror",
     "wgmma_sm90:tile=64x80x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1", 304},
    {"wgmma_sm90_gram_whole_rows", "sm_90a", "gram,dtype=bf16,B=1,T=264,D=64,epilogue=residual+mirror",
     "wgmma_sm90:tile=128x128x64,warps=4x1,stages=6,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_gram_slices", "sm_90a", "gram,dtype=bf16,B=2,T=256,D=64,epilogue=residual+mirror",
     "wgmma_sm90:tile=128x128x64,warps=8x1,stages=4,splitk=2,vec=8x8x8,cluster=2,blocks=1"},
    {"wgmma_sm90_stacked", "sm_90a", "grad_weight,dtype=bf16,B=40,T=24,D=64,epilogue=bias",
     "wgmma_sm90:tile=64x64x64,warps=8x1,stages=6,splitk=5,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_slice_alone", "sm_90a", "grad_weight,dtype=bf16,B=4,T=128,D=64,epilogue=bias",
     "wgmma_sm90:tile=64x64x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_wide_slice_alone", "sm_90a",
     "grad_weight,dtype=bf16,B=4,T=128,D=64,wdtype=f32,epilogue=bias",
     "wgmma_sm90:tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_three_panels", "sm_90a", "grad_weight,dtype=bf16,B=4,T=256,D=64,epilogue=bias",
     "wgmma_sm90:tile=128x192x64,warps=8x1,stages=5,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_sm90_weight_slices_64", "sm_90a", "grad_weight,dtype=bf16,B=4,T=128,D=64,epilogue=bias",
     "wgmma_sm90:tile=64x64x64,warps=4x1,stages=4,splitk=4,vec=8x8x8,cluster=4,blocks=1"},
    {"wgmma_sm90_weight_slices_128", "sm_90a",
     "grad_weight,dtype=bf16,B=4,T=128,D=64,wdtype=f32,epilogue=bias",
     "wgmma_sm90:tile=128x128x64,warps=8x1,stages=4,splitk=3,vec=8x8x8,cluster=3,blocks=1"},
    {"wgmma_tf32_sm90_forward", "sm_90a", "forward,dtype=f32,math=tf32,B=2,T=256,D=64",
     "wgmma_tf32_sm90:tile=128x64x32,warps=1x4,stages=8,splitk=1,vec=4x4x4,cluster=1,blocks=1"},
    {"wgmma_tf32_sm90_grad_input", "sm_90a", "grad_input,dtype=f32,math=tf32,B=2,T=256,D=64",
     "wgmma_tf32_sm90:tile=128x64x32,warps=1x4,stages=8,splitk=1,vec=1x4x4,cluster=1,blocks=1"},
    {"wgmma_split_sm90_forward", "sm_90a", "forward,dtype=f32,math=f16x3,B=2,T=256,D=64",
     "wgmma_split_sm90:tile=128x128x64,warps=8x1,stages=3,splitk=1,vec=4x4x2,cluster=1,blocks=1", 0, 256},
    {"wgmma_split_sm90_rows64", "sm_90a", "forward,dtype=f32,math=f16x3,B=2,T=256,D=64",
     "wgmma_split_sm90:tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=4x4x2,cluster=1,blocks=1", 0, 256},
    {"wgmma_split_sm90_grad_weight", "sm_90a", "grad_weight,dtype=f32,math=f16x3,B=2,T=256,D=64",
     "wgmma_split_sm90:tile=128x128x64,warps=8x1,stages=3,splitk=2,vec=4x4x2,cluster=1,blocks=1"},
    {"wgmma_split_sm90_inside", "sm_90a", "grad_weight,dtype=f32,math=f16x3,B=2,T=256,D=64,epilogue=bias",
     "wgmma_split_sm90:tile=128x128x64,warps=8x1,stages=2,splitk=2,vec=4x4x2,cluster=1,box=32,blocks=1"},
    {"wgmma_resident_sm90_forward", "sm_90a", "forward,dtype=bf16,B=2,T=128,D=64,epilogue=bias+gelu",
     "wgmma_resident_sm90:tile=128x64x64,warps=4x2,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_resident_sm90_grad_input_bdt", "sm_90a", "grad_input,dtype=bf16,B=2,T=128,D=64,layout=bdt",
     "wgmma_resident_sm90:tile=128x64x64,warps=4x1,stages=5,splitk=1,vec=8x8x8,cluster=1,blocks=1"},
    {"wgmma_resident_sm90_f32_weights", "sm_90a",
     "forward,dtype=bf16,wdtype=f32,B=2,T=32,D=128,epilogue=residual",
     "wgmma_resident_sm90:tile=64x128x64,warps=4x2,stages=4,splitk=1,raster=1,vec=1x8x8,cluster=1,blocks=1"},
    {"wgmma_resident_sm90_boxes", "sm_90a", "grad_input,dtype=bf16,B=4,H=2,T=256,D=32",
     "wgmma_resident_sm90:tile=256x64x64,warps=8x1,stages=4,splitk=1,vec=8x8x8,cluster=1,box=32,blocks=1"},
    // Stores: where W is packed runs of an even number of taps lie one piece of 16 bytes apart, so that of eight lanes that write
    // pieces one after the other the last may meet the first (templates/pack.h). What reads them has none.
    {"wgmma_taps_sm90_forward", "sm_90a", "forward,dtype=bf16,B=2,T=256,D=64,K=4,pad=1",
     "wgmma_taps_sm90:tile=128x64x64,warps=1x4,stages=8,splitk=1,vec=8x8x8,cluster=2,blocks=1", 0, 2560},
    {"wgmma_taps_sm90_exchange", "sm_90a", "forward,dtype=bf16,B=1,T=136,D=64,K=4,epilogue=pre+gate+residual",
     "wgmma_taps_sm90:tile=128x64x64,warps=1x4,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1", 0, 1536},
    {"wgmma_taps_sm90_exchange_bdt", "sm_90a",
     "forward,dtype=bf16,B=1,T=136,D=64,K=4,layout=bdt,epilogue=pre+gate+residual",
     "wgmma_taps_sm90:tile=128x64x64,warps=1x4,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1", 0, 1536},
    {"wgmma_taps_sm90_weight_four", "sm_90a", "grad_weight,dtype=bf16,B=4,T=128,D=64,K=4,wdtype=f32",
     "wgmma_taps_sm90:tile=128x256x64,warps=4x2,stages=5,splitk=1,vec=8x8x4,cluster=1,blocks=1"},
    {"wgmma_taps_sm90_weight_rows", "sm_90a", "grad_weight,dtype=bf16,B=4,T=128,D=64,K=3,pad=1",
     "wgmma_taps_sm90:tile=128x192x64,warps=4x2,stages=5,splitk=1,vec=8x8x4,cluster=1,blocks=1"},
    {"wgmma_taps_sm90_weight_two", "sm_90a", "grad_weight,dtype=bf16,B=4,T=128,D=64,K=2",
     "wgmma_taps_sm90:tile=128x128x64,warps=4x2,stages=6,splitk=1,vec=8x8x4,cluster=1,blocks=1"},
};

// Each leaves the layout one that conflicts, and most of them leave the results right.
const Edit kEdits[] = {
    {"mma_sm70_forward", "padded.h", "kPad = 16;", "kPad = 0;"},
    {"mma_sm70_narrow", "padded.h", "(n & 1) * 4 + (n >> 1 & 3)", "(n & 7)"},
    {"mma_sm70_rounded", "rounded_epilogue.h", "kSkew = 32", "kSkew = 0"},
    {"mma_sm75_forward", "swizzle.cuh", "mix = row & 7;", "mix = row & 3;"},
    {"mma_sm70_grad_weight", "schedule.h", "kSlicePadColumns = 8", "kSlicePadColumns = 0"},
    {"mma_sm80_forward", "swizzle.cuh", "mix = row & 7;", "mix = 0;"},
    {"mma_sm80_narrow", "swizzle.cuh", "mix = (row >> 1) & 3;", "mix = 0;"},
    {"mma_sm80_grad_input_bdt", "schedule.h", "kSlicePadRows = 4", "kSlicePadRows = 0"},
    {"mma_sm80_tf32_grad_input", "swizzle.cuh", "mix = (row & 3) << 1;", "mix = row & 3;"},
    {"mma_tma_sm90_forward", "mma_tma_sm90/fragments.cuh", "^ (row & 7)) << 4", "^ (row & 3)) << 4"},
    {"newton_schulz_cluster", "newton_schulz_sm80.cuh", "lane / 16 * 8 + lane % 8 / 2 * 2 + lane / 8 % 2",
     "lane / 2"},
    {"simt_forward", "schedule.h", "kSimtPad = 4", "kSimtPad = 0"},
    {"wgmma_sm90_forward", "persistent/staging.cuh", "^ (line / kParts & (kChunks - 1))",
     "^ (line / kParts & (kChunks / 2 - 1))"},
    {"wgmma_sm90_brought_rows", "persistent/weight_rows.cuh", "(row % 4 * 8 + (row / 4 ^ row % 4 * 2))",
     "row"},
    {"wgmma_sm90_gram", "persistent/output_panels.cuh", "^ (line & 7)) << 4), from.words[2 * j][0]",
     "^ (line & 3)) << 4), from.words[2 * j][0]"},
    {"wgmma_sm90_gram_slices", "persistent/slice_sums.cuh", "chunk * kSentBytes + 16 * lane",
     "chunk * kSentBytes + 16 * (lane / 8 + lane % 8 * 4)"},
    {"wgmma_sm90_f32_forward", "wgmma_sm90/weights_f32.cuh", "(i ^ (odd ? 1u : 0u))",
     "(i ^ (odd ? 0u : 0u))"},
    {"wgmma_split_sm90_inside", "wgmma_split_sm90/inside.cuh", "(4 * half() + i ^ (thread & 7)) << 4",
     "(4 * half() + i ^ (thread & 3)) << 4"},
    {"wgmma_sm90_numbers", "wgmma_sm90/toeplitz.cuh", "kSecond = kWords + 16", "kSecond = kWords"},
    {"wgmma_sm90_slices", "persistent/sent_sums.cuh", "kSlotBytes + threadIdx.x * 16;",
     "kSlotBytes + threadIdx.x % 64 * 32 + threadIdx.x / 64 * 16;"},
    {"wgmma_tf32_sm90_forward", "wgmma_tf32_sm90/store.cuh", "^ (row / 2 % 2 * 5)", "^ (row / 2 % 2 * 4)"},
    {"wgmma_resident_sm90_forward", "persistent/staging.cuh", "^ (line / kParts & (kChunks - 1))",
     "^ (line / kParts & 3)"},
    {"wgmma_taps_sm90_forward", "wgmma_taps_sm90/transpose.cuh", "^ (lane % 8)) << 4", ") << 4"},
    {"wgmma_taps_sm90_weight_four", "wgmma_taps_sm90.h", "taps == 3 ? 32 : 16;", "taps == 3 ? 32 : 0;"},
    {"wgmma_taps_sm90_exchange", "wgmma_taps_sm90/output.cuh", "lane / 8 % 2) ^ (line & 7)) << 4",
     "lane / 8 % 2) ^ (line & 3)) << 4"},
    {"wgmma_taps_sm90_exchange_bdt", "wgmma_taps_sm90/output.cuh", "(chunk ^ (line & 7)) << 4",
     "(chunk ^ (line & 3)) << 4"},
};

// A candidate's PTX, with one template edited where `edit` is not null: the edited text is there once, or the
// test is out of date. No machine code: the emulated device runs PTX.
llvm::Expected<Binary> compile_ptx(const Candidate& candidate, const Nvrtc& nvrtc, const Edit* edit) {
  std::vector<std::string> texts;
  std::vector<const char*> text_pointers, names;
  bool found = edit == nullptr;
  for (const TemplateFile& file : template_files()) {
    std::string text = file.text.str();
    if (edit != nullptr && file.name == edit->file) {
      const size_t at = text.find(edit->from);
      found = at != std::string::npos && text.find(edit->from, at + 1) == std::string::npos;
      if (found) text.replace(at, std::string(edit->from).size(), edit->to);
    }
    texts.push_back(std::move(text));
    names.push_back(file.name.data());
  }
  if (!found)
    return make_error(ErrorKind::kInternal,
                      std::string(edit->file) + " does not have '" + edit->from + "' once; mend the test");
  for (const std::string& text : texts) text_pointers.push_back(text.c_str());
  const Nvrtc::Api& api = nvrtc.api();
  const Target& target = *candidate.target;
  const Source source = render(candidate);
  void* program = nullptr;
  api.nvrtcCreateProgram(&program, source.text.c_str(), "kernel.cu", static_cast<int>(names.size()),
                         text_pointers.data(), names.data());
  const std::string arch = "--gpu-architecture=compute_" + target.name.drop_front(3).str();
  const char* options[] = {arch.c_str(), "--std=c++20"};
  const int result = api.nvrtcCompileProgram(program, 2, options);
  Binary binary;
  size_t size = 0;
  if (result == 0 && api.nvrtcGetPTXSize(program, &size) == 0 && size > 0) {
    binary.ptx.resize(size);
    api.nvrtcGetPTX(program, binary.ptx.data());
    while (!binary.ptx.empty() && binary.ptx.back() == '\0') binary.ptx.pop_back();
  }
  api.nvrtcDestroyProgram(&program);
  if (result != 0) return make_error(ErrorKind::kBuild, api.nvrtcGetErrorString(result));
  binary.candidate = describe(candidate);
  binary.problem = to_string(candidate.problem);
  const LaunchPlan plan = candidate.family->launch_plan(candidate.problem, target, candidate.config);
  for (const Launch& launch : plan.launches) binary.entry += (binary.entry.empty() ? "" : " ") + launch.entry;
  return binary;
}

struct Conflicts {
  int64_t requests = 0, loads = 0, stores = 0;
};

// Of a whole run of the problem, every launch.
llvm::Expected<Conflicts> count(const Candidate& candidate, Binary binary) {
  auto device = Device::open("emulated:" + candidate.target->name.str());
  if (!device) return device.takeError();
  auto bench = Workbench::create(**device, candidate.problem);
  if (!bench) return bench.takeError();
  auto plan = Plan::of(candidate, std::move(binary), **device, LoadFrom::kPtx);
  if (!plan) return plan.takeError();
  auto kernels = profile(**plan, **bench);
  if (!kernels) return kernels.takeError();
  Conflicts out;
  for (const KernelProfile& kernel : *kernels) {
    out.requests += kernel.counters["shared_load_requests"].get<int64_t>() +
                    kernel.counters["shared_store_requests"].get<int64_t>();
    out.loads += kernel.counters["shared_load_conflicts"].get<int64_t>();
    out.stores += kernel.counters["shared_store_conflicts"].get<int64_t>();
  }
  return out;
}

bool allowed(const Kernel& kernel, const Conflicts& conflicts) {
  return conflicts.loads <= kernel.loads && conflicts.stores <= kernel.stores;
}

llvm::Expected<Candidate> candidate_of(const Kernel& kernel) {
  const Target* target = llvm::cantFail(find_target(kernel.target));
  return parse_candidate(llvm::cantFail(parse_problem(kernel.problem)), *target, kernel.candidate);
}

#define NEEDS_COMPILER(target)        \
  auto nvrtc = Nvrtc::choose(target); \
  if (!nvrtc) GTEST_SKIP() << "[SKIP] " << take_error(nvrtc.takeError()).message

class InKernels : public testing::TestWithParam<Kernel> {};

TEST_P(InKernels, AreNoMoreThanAllowed) {
  TAKES_ONE_OF(2);
  auto candidate = candidate_of(GetParam());
  ASSERT_TRUE(static_cast<bool>(candidate)) << take_error(candidate.takeError()).message;
  NEEDS_COMPILER(*candidate->target);
  auto binary = compile_ptx(*candidate, **nvrtc, nullptr);
  ASSERT_TRUE(static_cast<bool>(binary)) << take_error(binary.takeError()).message;
  auto conflicts = count(*candidate, std::move(*binary));
  ASSERT_TRUE(static_cast<bool>(conflicts)) << take_error(conflicts.takeError()).message;
  EXPECT_GT(conflicts->requests, 0);
  EXPECT_LE(conflicts->loads, GetParam().loads);
  EXPECT_LE(conflicts->stores, GetParam().stores);
}
INSTANTIATE_TEST_SUITE_P(Conflicts, InKernels, testing::ValuesIn(kKernels),
                         [](const auto& info) { return info.param.name; });

class AfterEdits : public testing::TestWithParam<Edit> {};

TEST_P(AfterEdits, AreRefused) {
  TAKES_ONE_OF(3);
  const Edit& edit = GetParam();
  const Kernel* kernel = nullptr;
  for (const Kernel& k : kKernels)
    if (k.name == std::string(edit.kernel)) kernel = &k;
  ASSERT_NE(kernel, nullptr) << edit.kernel;
  auto candidate = candidate_of(*kernel);
  ASSERT_TRUE(static_cast<bool>(candidate)) << take_error(candidate.takeError()).message;
  NEEDS_COMPILER(*candidate->target);
  auto binary = compile_ptx(*candidate, **nvrtc, &edit);
  ASSERT_TRUE(static_cast<bool>(binary)) << take_error(binary.takeError()).message;
  auto conflicts = count(*candidate, std::move(*binary));
  ASSERT_TRUE(static_cast<bool>(conflicts)) << take_error(conflicts.takeError()).message;
  EXPECT_FALSE(allowed(*kernel, *conflicts))
      << edit.file << ": '" << edit.to << "' for '" << edit.from << "' leaves " << conflicts->loads
      << " conflicts of loads and " << conflicts->stores << " of stores, as many as are allowed";
}
INSTANTIATE_TEST_SUITE_P(Conflicts, AfterEdits, testing::ValuesIn(kEdits),
                         [](const auto& info) { return info.param.kernel; });

}  // namespace
}  // namespace trigen
