# cedra_module(NAME LINK libs...): a static library cedra_NAME from src/NAME/*.cpp, and, with
# CEDRA_TESTS, one test program NAME_test from src/NAME/*_test.cpp. Folders without sources become
# interface libraries, so that a layer may exist before its code.
function(cedra_module name)
  cmake_parse_arguments(ARG "HEADER_ONLY_OK" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(sources)
    add_library(cedra_${name} STATIC ${sources})
    target_include_directories(cedra_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(cedra_${name} PUBLIC ${ARG_LINK})
  else()
    add_library(cedra_${name} INTERFACE)
    target_include_directories(cedra_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(cedra_${name} INTERFACE ${ARG_LINK})
  endif()
  if(CEDRA_TESTS AND tests)
    cedra_test(${name}_test SOURCES ${tests} LINK cedra_${name})
  endif()
endfunction()

# cedra_test(NAME SOURCES files... LINK libs...): a GoogleTest program that knows where the
# repository is, so that it can read tests/ and models/.
function(cedra_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_compile_definitions(${name} PRIVATE CEDRA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set(limit 600)
  if(CEDRA_SANITIZE)
    set(limit 3600)  # programs run several times as long: engine_test needs more than 600 s on two cores
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit})
endfunction()

# The kernels: one object library per level, each compiled with its own instruction set. Everything
# else in the program is built for the baseline, so it starts on any x86-64.
function(cedra_kernels)
  file(GLOB common CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.cpp ${CMAKE_SOURCE_DIR}/src/kernels/scalar/*.cpp)
  set(tests ${common})
  list(FILTER common EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  file(GLOB avx2 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/avx2/*.cpp)
  file(GLOB avx512 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/avx512/*.cpp)
  file(GLOB amx CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/amx/*.cpp)
  # Vectors never cross a call boundary there; g++ would note an ABI change of GCC 4.6 for each.
  set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-Wno-psabi;-mavx2;-mfma;-mf16c;-mbmi2")
  set_source_files_properties(${avx512} PROPERTIES COMPILE_OPTIONS
    "-Wno-psabi;-mavx2;-mfma;-mf16c;-mbmi2;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vbmi;-mavx512bf16;-mprefer-vector-width=512")
  set_source_files_properties(${amx} PROPERTIES COMPILE_OPTIONS
    "-Wno-psabi;-mavx2;-mfma;-mf16c;-mbmi2;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vbmi;-mavx512bf16;-mprefer-vector-width=512")
  if(common)
    add_library(cedra_kernels STATIC ${common} ${avx2} ${avx512} ${amx})
    target_include_directories(cedra_kernels PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(cedra_kernels PUBLIC cedra_base cedra_numerics)
    if(CEDRA_TESTS AND tests)
      cedra_test(kernels_test SOURCES ${tests} LINK cedra_kernels)
    endif()
  else()
    add_library(cedra_kernels INTERFACE)
    target_include_directories(cedra_kernels INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(cedra_kernels INTERFACE cedra_base cedra_numerics)
  endif()
endfunction()
