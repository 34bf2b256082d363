# The emulated device against a GPU's recorded answers, and the program that records them.
if(TARGET trigen_emulator AND TARGET trigen_check)
  add_library(trigen_recorded STATIC recorded_corpus.cpp recorded_probes.cpp)
  target_include_directories(trigen_recorded PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(trigen_recorded PUBLIC trigen_check trigen_json trigen_zstd)
  trigen_options(trigen_recorded)
  add_executable(record_corpus record_corpus.cpp)
  target_link_libraries(record_corpus PRIVATE trigen_recorded)
  trigen_options(record_corpus)
  trigen_test(emulated recorded_test DEPENDS trigen_recorded)
  set(recorded ${CMAKE_CURRENT_SOURCE_DIR}/recorded)
  target_compile_definitions(emulated_recorded_test PRIVATE
      TRIGEN_CORPUS="${recorded}/h200.corpus" TRIGEN_CORPUS_PROBLEMS="${recorded}/problems.txt"
      TRIGEN_CORPUS_SOURCES="${recorded}/sources.txt")
  add_dependencies(emulated_recorded_test trigen_emulator)
endif()
