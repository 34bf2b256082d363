include_guard()

# trigen_options(<target>): warnings, sanitizers and section flags that every target of the project shares.
function(trigen_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter -ffunction-sections -fdata-sections)
  if(TRIGEN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()

# trigen_library(<folder> SOURCES <file>... DEPENDS <target>...)
# A static library trigen_<folder>. Its headers are included from the project's root: #include "generator/problem.h".
function(trigen_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(trigen_${folder} STATIC ${ARG_SOURCES})
  target_include_directories(trigen_${folder} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(trigen_${folder} PUBLIC ${ARG_DEPENDS})
  trigen_options(trigen_${folder})
endfunction()
