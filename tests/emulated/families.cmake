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

# Tiles that small problems are not given: row tiles of 256 by pairs of blocks, many parts, single elements of dW.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(config 256x64:4:3:8:2 256x64:3:2:1:2 256x64:4:5:2:1 128x64:5:7:8:1)
    string(REPLACE ":" ";" part ${config})
    list(GET part 0 tile)
    list(GET part 1 stages)
    list(GET part 2 split)
    list(GET part 3 vec)
    list(GET part 4 cluster)
    string(REPLACE ":" "_" name ${config})
    add_test(NAME emulated.grad_weight.${name}
             COMMAND trigen_program verify --device emulated:sm_90a --problems ${CMAKE_CURRENT_SOURCE_DIR}/problems_grad_weight.txt
                     --family wgmma_sm90 --config tile=128x${tile},warps=8x1,stages=${stages},splitk=${split},vec=8x8x${vec},cluster=${cluster},blocks=1)
    set_tests_properties(emulated.grad_weight.${name} PROPERTIES LABELS emulated TIMEOUT 900
                         ENVIRONMENT TRIGEN_CACHE=${CMAKE_BINARY_DIR}/tests/emulated-grad_weight-${name}.db
                         SKIP_REGULAR_EXPRESSION "no compiler here makes")
  endforeach()
endif()
