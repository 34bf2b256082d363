// What the precompiled headers are made beside (CMakeLists.txt, tests/CMakeLists.txt).
