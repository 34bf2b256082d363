// wgmma: matrix products of a warpgroup, with operands in shared memory through descriptors. Every warp
// computes its own 16 rows. Products run as late as allowed: when the warp waits for their group. (PTX ISA,
// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions": fragments, matrix descriptor, core
// matrices, canonical layouts)

#include "emulator/access.h"
#include "emulator/exec.h"
#include "emulator/real16.h"
#include "emulator/tensor_map.h"

namespace trigen::emulator {
namespace {

// inst.aux of wgmma.mma_async: N, then flags.
constexpr uint64_t kNMask = 0x1ff;
constexpr uint64_t kHalfAccumulator = 1 << 9;
constexpr uint64_t kARegisters = 1 << 10;
constexpr uint64_t kATransposed = 1 << 11;
constexpr uint64_t kBTransposed = 1 << 12;
constexpr uint64_t kNegateA = 1 << 13;
constexpr uint64_t kNegateB = 1 << 14;
constexpr int kInputShift = 16;

struct Descriptor {
  uint32_t start, leading, stride;  // bytes
  cuda::CUtensorMapSwizzle swizzle;
  explicit Descriptor(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4),
        swizzle(cuda::CU_TENSOR_MAP_SWIZZLE_NONE) {
    switch (bits >> 62) {
      case 1:
        swizzle = cuda::CU_TENSOR_MAP_SWIZZLE_128B;
        break;
      case 2:
        swizzle = cuda::CU_TENSOR_MAP_SWIZZLE_64B;
        break;
      case 3:
        swizzle = cuda::CU_TENSOR_MAP_SWIZZLE_32B;
        break;
      default:
        break;
    }
  }
  uint32_t span() const {  // bytes of a swizzled row, 16 without a swizzle
    switch (swizzle) {
      case cuda::CU_TENSOR_MAP_SWIZZLE_128B:
        return 128;
      case cuda::CU_TENSOR_MAP_SWIZZLE_64B:
        return 64;
      case cuda::CU_TENSOR_MAP_SWIZZLE_32B:
        return 32;
      default:
        return 16;
    }
  }
  // The 16-byte chunk that holds elements [8c, 8c + 8) of the contiguous axis at `row` of the other axis. For
  // a K-major operand the contiguous axis is K and row is m or n; for an MN-major one it is the other way
  // round.
  uint32_t chunk(uint32_t row, uint32_t c, bool mn_major) const {
    const uint32_t chunks = span() / 16;
    uint32_t address = start;
    if (swizzle == cuda::CU_TENSOR_MAP_SWIZZLE_NONE) {
      // Core matrices of 8 rows x 16 bytes, stored whole. K-major: LBO steps along K, SBO along M or N.
      // MN-major: LBO along K as well (groups of 8 rows), SBO along M or N.
      address +=
          (row % 8) * 16 + (mn_major ? (row / 8) * leading + c * stride : (row / 8) * stride + c * leading);
    } else if (mn_major) {
      address += (row % 8) * span() + (row / 8) * stride + (c % chunks) * 16 + (c / chunks) * leading;
    } else {
      address += (row % 8) * span() + (row / 8) * stride + c * 16;
    }
    return swizzle_address(address, swizzle);
  }
};

struct Reader {
  Warp& warp;
  const PendingProduct& product;

  void read(uint32_t address, uint8_t* value) {
    const uint32_t lane = 0;
    Place from = shared_place(warp, address & 0x3ffff, 16, 16, lane);
    if (warp.block->launch->options->check_uninitialised)
      for (int i = 0; i < 16; ++i)
        if (from.written[i] == 0) {
          warp.report(Fault::kUninitialised, lane,
                      "shared offset " + std::to_string(from.offset + static_cast<uint32_t>(i)) +
                          " is read by wgmma");
          break;
        }
    // The read lasts until the warp has waited for the product, which is when this runs at the latest.
    if (from.shared->race.enabled()) {
      const Clocks& clocks = warp.block->cluster->clocks;
      const Accessor by{warp.agent, Known::kWarp, product.view.clock.data(), clocks.now(warp.agent),
                        clocks.ended()};
      report_race(warp, from.shared->race.async_read(from.offset, 16, by, product.view), from.offset, lane);
    }
    std::memcpy(value, from.at, 16);
  }
};

float element(Input kind, const uint8_t* at) {
  if (kind == Input::kTF32) {
    uint32_t bits;
    std::memcpy(&bits, at, 4);
    return std::bit_cast<float>(bits & 0xffffe000u);
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return kind == Input::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// Reads rows [first, first + rows) of an operand into out[row][k] (K-major or not).
void read_operand(Reader& reader, uint64_t bits, Input kind, bool transposed, uint32_t first, uint32_t rows,
                  float* out, uint32_t k_count) {
  const Descriptor descriptor(bits);
  const uint32_t bytes = kind == Input::kTF32 ? 4 : 2, per_chunk = 16 / bytes;
  uint8_t value[16];
  if (!transposed) {
    for (uint32_t row = 0; row < rows; ++row)
      for (uint32_t c = 0; c < k_count / per_chunk; ++c) {
        reader.read(descriptor.chunk(first + row, c, false), value);
        for (uint32_t i = 0; i < per_chunk; ++i)
          out[row * k_count + c * per_chunk + i] = element(kind, value + i * bytes);
      }
    return;
  }
  for (uint32_t k = 0; k < k_count; ++k)
    for (uint32_t c = 0; c < rows / per_chunk; ++c) {
      reader.read(descriptor.chunk(k, first / per_chunk + c, true), value);
      for (uint32_t i = 0; i < per_chunk; ++i)
        out[(c * per_chunk + i) * k_count + k] = element(kind, value + i * bytes);
    }
}

void multiply_out(Warp& warp, const PendingProduct& product) {
  const Inst* before = warp.inst;
  const Inst& inst = *product.inst;
  warp.inst = &inst;
  const uint32_t n_count = static_cast<uint32_t>(inst.aux & kNMask);
  const Input kind = static_cast<Input>(inst.aux >> kInputShift & 3);
  const uint32_t k_count = kind == Input::kTF32 ? 8 : 16;
  const bool half = (inst.aux & kHalfAccumulator) != 0;
  float a[16 * 16];
  thread_local std::vector<float> b;
  thread_local std::vector<double> b_columns, c;  // [k][n], [m][n]
  b.resize(n_count * k_count);
  Reader reader{warp, product};
  if ((inst.aux & kARegisters) != 0) {
    for (uint32_t i = 0; i < 4; ++i)
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t bits = product.a_registers[i * 32 + lane], row = lane / 4 + 8 * (i & 1),
                       pair = lane % 4;
        uint8_t bytes[4];
        std::memcpy(bytes, &bits, 4);
        if (kind == Input::kTF32) {
          a[row * k_count + pair + 4 * (i / 2)] = element(kind, bytes);
        } else {
          a[row * k_count + 2 * pair + 8 * (i / 2)] = element(kind, bytes);
          a[row * k_count + 2 * pair + 8 * (i / 2) + 1] = element(kind, bytes + 2);
        }
      }
  } else {
    read_operand(reader, product.a_descriptor, kind, (inst.aux & kATransposed) != 0, 16 * (warp.index % 4),
                 16, a, k_count);
  }
  read_operand(reader, product.b_descriptor, kind, (inst.aux & kBTransposed) != 0, 0, n_count, b.data(),
               k_count);
  const double sign = ((inst.aux & kNegateA) != 0) != ((inst.aux & kNegateB) != 0) ? -1.0 : 1.0;
  b_columns.resize(k_count * n_count);
  for (uint32_t n = 0; n < n_count; ++n)
    for (uint32_t k = 0; k < k_count; ++k)
      b_columns[k * n_count + n] = static_cast<double>(b[n * k_count + k]);
  c.assign(16 * n_count, 0.0);
  // Register i of a lane: columns 8 * (i / 4) + 2 * pair + (i & 1), row group + 8 for i & 2; f16 packs two of
  // them.
  const uint32_t registers = half ? n_count / 4 : n_count / 2;
  auto place_of = [&](uint32_t i, uint32_t lane, uint32_t h) {
    const uint32_t e = half ? 2 * i + h : i;
    return (lane / 4 + 8 * (e / 2 & 1)) * n_count + 8 * (e / 4) + 2 * (lane % 4) + (e & 1);
  };
  if (product.accumulate)
    for (uint32_t i = 0; i < registers; ++i) {
      const uint32_t* d = warp.lanes<uint32_t>(inst.list[i]);
      for (uint32_t lane = 0; lane < 32; ++lane) {
        if (half)
          for (uint32_t h = 0; h < 2; ++h)
            c[place_of(i, lane, h)] =
                static_cast<double>(f16_to_f32(static_cast<uint16_t>(d[lane] >> (16 * h))));
        else
          c[place_of(i, lane, 0)] = static_cast<double>(std::bit_cast<float>(d[lane]));
      }
    }
  for (uint32_t m = 0; m < 16; ++m)
    for (uint32_t k = 0; k < k_count; ++k) {
      const double x = sign * static_cast<double>(a[m * k_count + k]);
      double* row = c.data() + m * n_count;
      const double* column = b_columns.data() + k * n_count;
      for (uint32_t n = 0; n < n_count; ++n) row[n] += x * column[n];
    }
  for (uint32_t i = 0; i < registers; ++i) {
    uint32_t* d = warp.lanes<uint32_t>(inst.list[i]);
    for (uint32_t lane = 0; lane < 32; ++lane)
      d[lane] = half ? f32_to_f16(round_to_odd(c[place_of(i, lane, 0)])) |
                           static_cast<uint32_t>(f32_to_f16(round_to_odd(c[place_of(i, lane, 1)]))) << 16
                     : std::bit_cast<uint32_t>(static_cast<float>(c[place_of(i, lane, 0)]));
  }
  // A product whose A comes from registers has waited for what its lanes loaded there, so each of them may let go of
  // the place for all. What they stored before it counts as known, too: more than anything promises.
  if ((inst.aux & kARegisters) != 0)
    warp.block->cluster->clocks.acquire(warp.agent, kFullMask, product.view.clock);
  warp.inst = before;
}

// op[1]: A's descriptor, op[2]: B's descriptor, op[3]: scale-d predicate. list: D registers, then A
// registers.
void product_async(Warp& warp, const Inst& inst, uint32_t mask) {
  if (mask != kFullMask)
    warp.abort(Fault::kMissingLanes, static_cast<uint32_t>(__builtin_ctz(mask)),
               "a warpgroup product needs all lanes");
  if (warp.block->warps.size() < warp.index / 4 * 4 + 4)
    warp.abort(Fault::kMissingLanes, 0, "the warp is in no complete warpgroup of four");
  PendingProduct product;
  product.inst = &inst;
  if ((inst.aux & kARegisters) != 0) {
    const uint32_t* a_slots = inst.list + inst.list_count - 4;
    for (int i = 0; i < 4; ++i)
      product.a_registers.insert(product.a_registers.end(), warp.lanes<uint32_t>(a_slots[i]),
                                 warp.lanes<uint32_t>(a_slots[i]) + 32);
  } else {
    product.a_descriptor = warp.lanes<uint64_t>(inst.op[1])[0];
  }
  product.b_descriptor = warp.lanes<uint64_t>(inst.op[2])[0];
  product.accumulate = inst.op[3] == kNoSlot || (warp.predicate(inst.op[3]) & 1) != 0;
  product.group = warp.products_committed;
  const std::string wrong = use_product_registers(warp, inst);
  if (!wrong.empty()) warp.report(Fault::kAsyncHazard, 0, wrong);
  product.view = async_view(warp, kFullMask);
  if (warp.index % 4 == 0) {
    ++warp.counters->matrix_operations;
    warp.counters->matrix_flops +=
        2u * 64 * (inst.aux & kNMask) * ((inst.aux >> kInputShift & 3) == 2 ? 8 : 16);
  }
  if ((inst.aux & kARegisters) != 0) warp.block->cluster->clocks.tick(warp.agent);
  AsyncOrder order = warp.block->launch->options->async;
  if (order == AsyncOrder::kEarly) {
    multiply_out(warp, product);
    warp.block->cluster->clocks.tick(warp.agent);
    return;
  }
  warp.products.push_back(std::move(product));
  mark_pending_registers(warp);
}

void fence(Warp& warp, const Inst&, uint32_t) { fence_product_registers(warp); }

void commit(Warp& warp, const Inst&, uint32_t) { ++warp.products_committed; }

void wait(Warp& warp, const Inst& inst, uint32_t) {
  size_t done = 0;
  const bool any = !warp.products.empty();
  while (done < warp.products.size() && static_cast<int64_t>(warp.products[done].group) + inst.imm <
                                            static_cast<int64_t>(warp.products_committed))
    multiply_out(warp, warp.products[done++]);
  warp.products.erase(warp.products.begin(), warp.products.begin() + static_cast<std::ptrdiff_t>(done));
  if (!any) return;
  mark_pending_registers(warp);
  warp.block->cluster->clocks.tick(warp.agent);  // what the warp does from here on comes after their reads
}

void decode_wgmma(Decoder& decoder, Inst& inst) {
  decoder.require_specific(90);
  inst.cls = InstClass::kMatrix;
  inst.flow = Flow::kCollective;
  decoder.ignore({"sync", "aligned"});
  if (decoder.take("fence")) {
    inst.fn = fence;
    return;
  }
  if (decoder.take("commit_group")) {
    inst.fn = commit;
    return;
  }
  if (decoder.take("wait_group")) {
    inst.imm = decoder.operand(0).integer;
    inst.fn = wait;
    return;
  }
  if (!decoder.take("mma_async")) decoder.fail("this operation is not known");
  int n = 0, k = 0;
  for (const std::string& modifier : decoder.modifiers())
    if (std::sscanf(modifier.c_str(), "m64n%dk%d", &n, &k) == 2) break;
  decoder.take("m64n" + std::to_string(n) + "k" + std::to_string(k));
  Type d = decoder.take_type(), a = decoder.take_type(), b = decoder.take_type();
  if (a != b) decoder.fail("A and B have different types");
  Input kind = a == Type::kF16 ? Input::kF16 : a == Type::kBF16 ? Input::kBF16 : Input::kTF32;
  if (a != Type::kF16 && a != Type::kBF16 && a != Type::kTF32)
    decoder.fail("this input type is not supported");
  if (n < 8 || n > 256 || n % 8 != 0 || k != (kind == Input::kTF32 ? 8 : 16))
    decoder.fail("this shape does not exist");
  bool half = d == Type::kF16;
  if (!half && d != Type::kF32) decoder.fail("this accumulator type is not supported");
  inst.aux =
      static_cast<uint64_t>(n) | (half ? kHalfAccumulator : 0) | static_cast<uint64_t>(kind) << kInputShift;
  std::vector<uint32_t> slots;
  for (const Operand& element : decoder.operand(0).elements)
    slots.push_back(decoder.dest_of(element, Type::kB32));
  if (slots.size() != static_cast<size_t>(half ? n / 4 : n / 2))
    decoder.fail("the number of accumulator registers does not fit the shape");
  const Operand& left = decoder.operand(1);
  const bool registers = left.kind == Operand::Kind::kVector;
  if (registers) {
    inst.aux |= kARegisters;
    if (left.elements.size() != 4) decoder.fail("A needs 4 registers");
    for (const Operand& element : left.elements) slots.push_back(decoder.source_of(element, Type::kB32));
  } else {
    inst.op[1] = decoder.source(1, Type::kB64);
  }
  decoder.set_list(inst, slots, static_cast<uint32_t>(half ? n / 4 : n / 2));
  inst.product = true;
  inst.op[2] = decoder.source(2, Type::kB64);
  inst.op[3] = decoder.predicate(3);
  if (decoder.operand(4).integer == -1) inst.aux |= kNegateA;
  if (decoder.operand(5).integer == -1) inst.aux |= kNegateB;
  if (kind != Input::kTF32) {
    size_t next = 6;
    if (!registers && decoder.operand(next++).integer == 1) inst.aux |= kATransposed;
    if (decoder.operand(next).integer == 1) inst.aux |= kBTransposed;
  } else if (decoder.operand_count() > 6) {
    decoder.fail("tf32 operands are K-major: no transposition");
  }
  inst.fn = product_async;
}

}  // namespace

void finish_products(Warp& warp) {
  for (const PendingProduct& product : warp.products) multiply_out(warp, product);
  warp.products.clear();
  mark_pending_registers(warp);
}

void register_wgmma(OpcodeTable& table) { table["wgmma"] = decode_wgmma; }

}  // namespace trigen::emulator
