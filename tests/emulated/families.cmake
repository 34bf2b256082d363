# Every kernel family on the emulated device: `trigen verify` against the double-precision reference, one test per target.
# Skipped where no NVRTC makes the target. The cache in the build folder keeps the kernels, so that a second run compiles none.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(target sm_70 sm_75 sm_80 sm_86 sm_89 sm_90a sm_120)
    set(problems ${CMAKE_CURRENT_SOURCE_DIR}/problems.txt)
    if(NOT target MATCHES "sm_7")
      string(APPEND problems "," ${CMAKE_CURRENT_SOURCE_DIR}/problems_sm80.txt)
    endif()
    if(target STREQUAL sm_90a)
      string(APPEND problems "," ${CMAKE_CURRENT_SOURCE_DIR}/problems_sm90a.txt)
    endif()
    add_test(NAME emulated.families.${target}
             COMMAND ${CMAKE_COMMAND} -DTRIGEN=$<TARGET_FILE:trigen_program> -DARCH=${target}
                     -DPROBLEMS=${problems} -DCACHE=${CMAKE_BINARY_DIR}/tests/emulated-${target}.db
                     -P ${CMAKE_CURRENT_SOURCE_DIR}/verify.cmake)
    set_tests_properties(emulated.families.${target} PROPERTIES LABELS emulated TIMEOUT 900 SKIP_REGULAR_EXPRESSION "no compiler here makes")
  endforeach()
endif()

# Random small problems: the shapes nobody thought of. TRIGEN_SEED chooses others; the log names the seed.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(target sm_70 sm_75 sm_80 sm_90a)
    add_test(NAME emulated.random.${target}
             COMMAND ${CMAKE_COMMAND} -DTRIGEN=$<TARGET_FILE:trigen_program> -DARCH=${target} -DCOUNT=60 -DSEED=1
                     -DCACHE=${CMAKE_BINARY_DIR}/tests/emulated-random-${target}.db -P ${CMAKE_CURRENT_SOURCE_DIR}/verify.cmake)
    set_tests_properties(emulated.random.${target} PROPERTIES LABELS emulated TIMEOUT 900 SKIP_REGULAR_EXPRESSION "no compiler here makes")
  endforeach()
endif()
