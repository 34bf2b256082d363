#include "emulator/driver.h"
using namespace trigen::cuda;
namespace trigen::cuda {
TRIGEN_ENTRY CUresult cuTensorMapReplaceAddress(CUtensorMap*, void*) { return CUDA_ERROR_NOT_SUPPORTED; }
TRIGEN_ENTRY CUresult cuTensorMapEncodeTiled(CUtensorMap* , CUtensorMapDataType , unsigned , void* ,
     const unsigned long long* , const unsigned long long* , const unsigned* ,
     const unsigned* , CUtensorMapInterleave , CUtensorMapSwizzle ,
     CUtensorMapL2promotion , CUtensorMapFloatOOBfill ) { return CUDA_ERROR_NOT_SUPPORTED; }
}
