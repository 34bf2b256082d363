# cmake -DTRIGEN=<program> -DTARGET=sm_70 -DPROBLEMS=<file>[,<file>] -DCACHE=<file> -P verify.cmake
# Exit status of `trigen verify --families all` on an emulated device of the target.
string(REPLACE "," ";--problems;" files "${PROBLEMS}")
set(ENV{TRIGEN_CACHE} ${CACHE})
execute_process(COMMAND ${TRIGEN} verify --families all --problems ${files} --device emulated:${TARGET} RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "verify on emulated:${TARGET} failed")
endif()
