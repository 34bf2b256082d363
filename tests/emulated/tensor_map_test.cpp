#include "emulator/tensor_map.h"

#include <gtest/gtest.h>

#include <set>

namespace trigen::emulator {
namespace {

TEST(TensorMap, EveryFieldComesBackFromItsBytes) {
  TensorMap map;
  map.address = 0x7f0012345680;
  map.rank = 5;
  map.element_bytes = 4;
  map.type = cuda::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  map.swizzle = cuda::CU_TENSOR_MAP_SWIZZLE_128B;
  map.nan_fill = true;
  for (uint32_t i = 0; i < 5; ++i) {
    map.dims[i] = (uint64_t{1} << 32) - i;
    map.strides[i] = (uint64_t{1} << 39) + 16 * i;
    map.box[i] = 256 - i;
  }
  cuda::CUtensorMap bytes;
  map.store(&bytes);
  TensorMap read;
  ASSERT_TRUE(read.load(&bytes));
  EXPECT_EQ(read.address, map.address);
  EXPECT_EQ(read.rank, map.rank);
  EXPECT_EQ(read.element_bytes, map.element_bytes);
  EXPECT_EQ(read.type, map.type);
  EXPECT_EQ(read.swizzle, map.swizzle);
  EXPECT_TRUE(read.nan_fill);
  uint64_t box = 4;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(read.dims[i], map.dims[i]);
    EXPECT_EQ(read.strides[i], map.strides[i]);
    EXPECT_EQ(read.box[i], map.box[i]);
    box *= map.box[i];
  }
  EXPECT_EQ(read.box_bytes(), box);
}

TEST(TensorMap, OtherBytesAreNoMap) {
  cuda::CUtensorMap bytes{};
  TensorMap map;
  EXPECT_FALSE(map.load(&bytes));
  map.rank = 2;
  map.store(&bytes);
  EXPECT_TRUE(map.load(&bytes));
  bytes.opaque[1] ^= uint64_t{1} << 40;
  EXPECT_FALSE(map.load(&bytes));
}

// PTX ISA, "Swizzling modes": chunks of 16 bytes change places within a row of 32, 64 or 128 bytes, so that the
// same chunk of consecutive rows lies in other banks.
TEST(TensorMap, SwizzlesExchangeChunksOfARow) {
  struct Mode {
    cuda::CUtensorMapSwizzle swizzle;
    uint32_t row;  // bytes
  };
  for (const Mode& mode :
       {Mode{cuda::CU_TENSOR_MAP_SWIZZLE_NONE, 16}, Mode{cuda::CU_TENSOR_MAP_SWIZZLE_32B, 32},
        Mode{cuda::CU_TENSOR_MAP_SWIZZLE_64B, 64}, Mode{cuda::CU_TENSOR_MAP_SWIZZLE_128B, 128}}) {
    std::set<uint32_t> places;
    for (uint32_t at = 0; at < 2048; at += 16) {
      const uint32_t place = swizzle_address(at, mode.swizzle);
      EXPECT_EQ(place / mode.row, at / mode.row) << "it stays in its row";
      EXPECT_EQ(swizzle_address(place, mode.swizzle), at) << "twice is nothing";
      EXPECT_EQ(swizzle_address(at + 7, mode.swizzle), place + 7) << "bytes of a chunk stay together";
      places.insert(place);
    }
    EXPECT_EQ(places.size(), 2048u / 16);
  }
  // Eight rows of 128 bytes: chunk 3 of each lies in another group of four banks.
  std::set<uint32_t> banks;
  for (uint32_t row = 0; row < 8; ++row)
    banks.insert(swizzle_address(128 * row + 48, cuda::CU_TENSOR_MAP_SWIZZLE_128B) % 128 / 16);
  EXPECT_EQ(banks.size(), 8u);
}

}  // namespace
}  // namespace trigen::emulator
