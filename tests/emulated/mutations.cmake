# Kernels without one of their synchronising instructions, on the emulated device: it must notice. Generated here, so
# a case is skipped where no NVRTC makes its target.
if(TARGET trigen_emulator AND TARGET trigen_check)
  trigen_test(emulated mutation_test SOURCES mutation_test.cpp mutations.cpp DEPENDS trigen_check trigen_json TIMEOUT 300
              PROPERTIES ENVIRONMENT TRIGEN_CACHE=${CMAKE_BINARY_DIR}/tests/emulated-mutations.db)
  target_include_directories(emulated_mutation_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(emulated_mutation_test PRIVATE TRIGEN_MUTATION_LIST="${CMAKE_CURRENT_SOURCE_DIR}/mutations.txt")
  add_dependencies(emulated_mutation_test trigen_emulator)
endif()
