# Kernels with a planted fault, on the emulated device: something must notice. Generated here, so a case is skipped
# where no NVRTC makes its target.
if(TARGET trigen_emulator AND TARGET trigen_check)
  # What both programs have, compiled once, as trigen_test compiles their own sources.
  add_library(emulated_mutants OBJECT mutations.cpp mutants.cpp)
  set_target_properties(emulated_mutants PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_include_directories(emulated_mutants PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(emulated_mutants PUBLIC trigen_check trigen_json PRIVATE GTest::gmock GTest::gtest_main)
  trigen_options(emulated_mutants)
  target_compile_options(emulated_mutants PRIVATE ${trigen_test_options})
  trigen_precompiled(emulated_mutants trigen_test_headers)
  trigen_test(emulated mutation_test SOURCES mutation_test.cpp survivors.cpp DEPENDS emulated_mutants TIMEOUT 300)
  target_compile_definitions(emulated_mutation_test PRIVATE
    TRIGEN_MUTATION_LIST="${CMAKE_CURRENT_SOURCE_DIR}/mutations.txt"
    TRIGEN_MUTATION_SURVIVORS="${CMAKE_CURRENT_SOURCE_DIR}/survivors.txt")
  add_dependencies(emulated_mutation_test trigen_emulator)
  trigen_test(emulated canary_mutation_test DEPENDS emulated_mutants TIMEOUT 300)
  add_dependencies(emulated_canary_mutation_test trigen_emulator)
endif()
