# libtrigen.a: all of libtrigen.so as one object whose only global functions are trigen_*, so that a program may have an LLVM,
# SQLite, zstd or libsodium of its own. What it leaves to the program's linker: the C++ library, the C library and what LLVM's Support names.
include_guard()
include(GNUInstallDirs)
if(TRIGEN_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR NOT CMAKE_OBJCOPY)
  return()  # a linker that resolves groups in a partial link, and an objcopy
endif()

set(archives "")
foreach(folder tuner check runtime cache numerics generator templates)
  if(TARGET trigen_${folder})
    get_target_property(kind trigen_${folder} TYPE)
    if(kind STREQUAL STATIC_LIBRARY)
      list(APPEND archives $<TARGET_FILE:trigen_${folder}>)
    endif()
  endif()
endforeach()
foreach(library LLVMSupport LLVMDemangle trigen_sqlite_static trigen_zstd_static)
  if(TARGET ${library})
    list(APPEND archives $<TARGET_FILE:${library}>)
  endif()
endforeach()
foreach(file ${SQLITE_STATIC} ${ZSTD_STATIC} ${SODIUM_STATIC})
  list(APPEND archives ${file})
endforeach()

set(object ${CMAKE_BINARY_DIR}/libtrigen.o)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/libtrigen.a
  COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -o ${object} -Wl,--force-group-allocation $<TARGET_OBJECTS:trigen>
          -Wl,--start-group ${archives} -Wl,--end-group
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=trigen_* --strip-debug ${object}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${CMAKE_BINARY_DIR}/libtrigen.a
  COMMAND ${CMAKE_AR} qcs ${CMAKE_BINARY_DIR}/libtrigen.a ${object}
  DEPENDS trigen $<TARGET_OBJECTS:trigen> COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking libtrigen.a")
add_custom_target(trigen_static ALL DEPENDS ${CMAKE_BINARY_DIR}/libtrigen.a)
install(FILES ${CMAKE_BINARY_DIR}/libtrigen.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
