# Kernels with a planted fault, on the emulated device: something must notice. Generated here, so a case is skipped
# where no NVRTC makes its target.
if(TARGET trigen_emulator AND TARGET trigen_check)
  trigen_test(emulated mutation_test SOURCES mutation_test.cpp mutations.cpp mutants.cpp survivors.cpp
              DEPENDS trigen_check trigen_json TIMEOUT 300)
  target_include_directories(emulated_mutation_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(emulated_mutation_test PRIVATE
    TRIGEN_MUTATION_LIST="${CMAKE_CURRENT_SOURCE_DIR}/mutations.txt"
    TRIGEN_MUTATION_SURVIVORS="${CMAKE_CURRENT_SOURCE_DIR}/survivors.txt")
  add_dependencies(emulated_mutation_test trigen_emulator)
  trigen_test(emulated canary_mutation_test SOURCES canary_mutation_test.cpp mutations.cpp mutants.cpp
              DEPENDS trigen_check trigen_json TIMEOUT 300)
  target_include_directories(emulated_canary_mutation_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  add_dependencies(emulated_canary_mutation_test trigen_emulator)
endif()
