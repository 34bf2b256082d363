# cmake -DTRIGEN=<program> -DARCH=sm_70 -DCACHE=<file> (-DPROBLEMS=<file>[,<file>] | -DCOUNT=<n> -DSEED=<n>) -P verify.cmake
# Exit status of `trigen verify` on an emulated device of the target: every family, for the problems of the files or
# for COUNT random ones. TRIGEN_SEED in the environment overrides SEED.
set(ENV{TRIGEN_CACHE} ${CACHE})
if(COUNT)
  if(DEFINED ENV{TRIGEN_SEED})
    set(SEED $ENV{TRIGEN_SEED})
  endif()
  set(what --random ${COUNT} --seed ${SEED})
else()
  string(REPLACE "," ";--problems;" files "${PROBLEMS}")
  set(what --problems ${files})
endif()
execute_process(COMMAND ${TRIGEN} verify --families all ${what} --device emulated:${ARCH} RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "verify on emulated:${ARCH} failed")
endif()
