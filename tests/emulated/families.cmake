# Every kernel family on the emulated device: `trigen verify` against the double-precision reference, one test per target. A target runs every
# third problem by the first family of its own, by the others, which serve few, every second problem, the next one the others, and one of 32
# by all families that it has, another one each; sm_86 and sm_89, whose families are sm_80's, run where the label `all` does.
# TRIGEN_TEST_ALL asks for all problems by all families.
# They fail where no NVRTC makes the target: a skip told by the output's text would hide other failures. The cache in the build folder
# keeps the kernels, so that a second run compiles none.
if(TARGET trigen_emulator AND TARGET trigen_program)
  set(own_sm_70 simt,mma_sm70)
  set(own_sm_75 mma_sm75)
  set(own_sm_80 mma_sm80,decode,grad_epilogue,scan,newton_schulz_sm80)
  set(own_sm_90a wgmma_sm90,wgmma_tf32_sm90,wgmma_split_sm90,wgmma_taps_sm90,wgmma_resident_sm90,wgmma_rows_sm90,newton_schulz_sm90)
  set(own_sm_100a mma_tma_sm90)
  set(place 0)
  foreach(target sm_70 sm_75 sm_80 sm_90a sm_86 sm_89 sm_100a sm_120)
    set(problems ${CMAKE_CURRENT_SOURCE_DIR}/problems.txt,${CMAKE_CURRENT_SOURCE_DIR}/problems_gram.txt,${CMAKE_CURRENT_SOURCE_DIR}/problems_forms.txt)
    if(NOT target MATCHES "sm_7")
      string(APPEND problems "," ${CMAKE_CURRENT_SOURCE_DIR}/problems_sm80.txt)
      string(APPEND problems "," ${CMAKE_CURRENT_SOURCE_DIR}/problems_newton_schulz.txt)
    endif()
    if(target STREQUAL sm_90a)
      string(APPEND problems "," ${CMAKE_CURRENT_SOURCE_DIR}/problems_sm90a.txt)
      string(APPEND problems "," ${CMAKE_CURRENT_SOURCE_DIR}/problems_split.txt)
      string(APPEND problems "," ${CMAKE_CURRENT_SOURCE_DIR}/problems_newton_schulz_sm90.txt)
    endif()
    math(EXPR first "4 * ${place} + ${place} / 2")  # odd ones, too: lists have their forms in turn
    math(EXPR place "${place} + 1")
    set(labels emulated)
    if(target MATCHES "sm_8[69]")  # sm_80's families and instructions
      list(APPEND labels all)
    endif()
    add_test(NAME emulated.families.${target}
             COMMAND ${CMAKE_COMMAND} -DTRIGEN=$<TARGET_FILE:trigen_lab_program> -DARCH=${target}
                     -DPROBLEMS=${problems} -DOWN=${own_${target}} -DEVERY=32 -DFIRST=${first} -DCACHE=${CMAKE_BINARY_DIR}/tests/emulated-${target}.db
                     -P ${CMAKE_CURRENT_SOURCE_DIR}/verify.cmake)
    set_tests_properties(emulated.families.${target} PROPERTIES LABELS "${labels}" TIMEOUT 900)
  endforeach()
endif()

# Random small problems: the shapes nobody thought of. TRIGEN_SEED chooses others; the log names the seed. 6 of each target's 60
# unless TRIGEN_TEST_ALL asks for all.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(target sm_70 sm_75 sm_80 sm_90a sm_100a)
    add_test(NAME emulated.random.${target}
             COMMAND ${CMAKE_COMMAND} -DTRIGEN=$<TARGET_FILE:trigen_lab_program> -DARCH=${target} -DCOUNT=60 -DSEED=1
                     -DCACHE=${CMAKE_BINARY_DIR}/tests/emulated-random-${target}.db -P ${CMAKE_CURRENT_SOURCE_DIR}/verify.cmake)
    set_tests_properties(emulated.random.${target} PROPERTIES LABELS emulated TIMEOUT 900)
  endforeach()
endif()

# The same with the lanes of a warp in any order, copies in any order, and one multiprocessor, so that stages come back.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(target sm_70 sm_90a)
    add_test(NAME emulated.lanes.${target}
             COMMAND ${CMAKE_COMMAND} -DTRIGEN=$<TARGET_FILE:trigen_lab_program> -DARCH=${target} -DCOUNT=40 -DSEED=3
                     -DCACHE=${CMAKE_BINARY_DIR}/tests/emulated-lanes-${target}.db -P ${CMAKE_CURRENT_SOURCE_DIR}/verify.cmake)
    set_tests_properties(emulated.lanes.${target} PROPERTIES LABELS emulated TIMEOUT 900
                         ENVIRONMENT "TRIGEN_EMULATED_SMS=1;TRIGEN_EMULATED_ASYNC=shuffled;TRIGEN_EMULATED_LANES=random:3")
  endforeach()
endif()

# The parts of "128x64:5:7" as the variables that are named; a part that is not there leaves its variable empty.
function(name_parts run)
  string(REPLACE ":" ";" parts ${run})
  foreach(name IN LISTS ARGN)
    list(POP_FRONT parts part)
    set(${name} "${part}" PARENT_SCOPE)
  endforeach()
endfunction()

# `trigen verify` on the emulated Hopper (or TARGET): emulated.<name> of problems_<list>.txt, with a cache of its own; what follows are
# more options of verify (--family, --config), and ENVIRONMENT with what the test has there. SHARED <n>: every n-th problem of the list,
# by the next config that runs the list those behind them, so that a quick run has all of a list's problems where n configs run it; of a
# shorter list one problem. emulated.<name>.rest, which has the label `all` as well, runs what is left. TURNS: of the configs that run the
# list a quick run takes every second.
function(add_verify_test name list)
  cmake_parse_arguments(ARG "TURNS" "SHARED;TARGET" "ENVIRONMENT" ${ARGN})
  if(NOT ARG_TARGET)
    set(ARG_TARGET sm_90a)
  endif()
  string(REPLACE "." "-" cache ${name})
  function(add_part test problems labels)
    add_test(NAME emulated.${test} COMMAND trigen_program verify --device emulated:${ARG_TARGET} --problems ${problems} ${ARG_UNPARSED_ARGUMENTS})
    set_tests_properties(emulated.${test} PROPERTIES LABELS "${labels}" TIMEOUT 900
                         ENVIRONMENT "TRIGEN_CACHE=${CMAKE_BINARY_DIR}/tests/emulated-${cache}.db;${ARG_ENVIRONMENT}"
                         SKIP_RETURN_CODE 3)  # no compiler here makes the target: cli/command.h
  endfunction()
  set(file ${CMAKE_CURRENT_SOURCE_DIR}/problems_${list}.txt)
  if(NOT ARG_SHARED)
    add_part(${name} ${file} emulated)
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  set_property(GLOBAL APPEND PROPERTY emulated_runs_${list} ${name})
  get_property(runs GLOBAL PROPERTY emulated_runs_${list})
  list(LENGTH runs number)
  set(labels emulated)
  math(EXPR turn "${number} % 2")
  if(ARG_TURNS AND turn EQUAL 0)
    list(APPEND labels all)
  endif()
  set(part "")
  set(rest "")
  file(STRINGS ${file} problems REGEX "^[^#]")
  list(LENGTH problems count)
  if(ARG_SHARED GREATER count)
    set(ARG_SHARED ${count})
  endif()
  foreach(problem IN LISTS problems)
    math(EXPR number "${number} + 1")
    math(EXPR place "${number} % ${ARG_SHARED}")
    if(place EQUAL 0)
      string(APPEND part "${problem}\n")
    else()
      string(APPEND rest "${problem}\n")
    endif()
  endforeach()
  set(problems ${CMAKE_CURRENT_BINARY_DIR}/${cache})
  file(WRITE ${problems}.txt "${part}")
  file(WRITE ${problems}-rest.txt "${rest}")
  add_part(${name} ${problems}.txt "${labels}")
  add_part(${name}.rest ${problems}-rest.txt "emulated;all")
  set_property(TEST emulated.${name}.rest PROPERTY DEPENDS emulated.${name})  # of one cache
endfunction()

# Tiles that small problems are not given: row tiles of 256 by pairs and squares of blocks, many parts, single elements of dW.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(config 256x64:4:3:8:2 256x64:3:2:1:2 256x64:4:5:2:1 128x64:5:7:8:1 128x64:6:4:8:4 128x64:6:1:2:4)
    name_parts(${config} tile stages split vec cluster)
    string(REPLACE ":" "_" name ${config})
    add_verify_test(grad_weight.${name} grad_weight SHARED 8
                    --family wgmma_sm90 --config tile=128x${tile},warps=8x1,stages=${stages},splitk=${split},vec=8x8x${vec},cluster=${cluster},blocks=1)
  endforeach()
endif()

# Scans by tiles of their own: a thread with all tokens of a step, several lanes and warps along them, parts.
if(TARGET trigen_emulator AND TARGET trigen_program)
  set(place 0)
  foreach(config
      tile=8x64x8,warps=1x1,stages=4,splitk=1,vec=1x8x2 tile=64x32x8,warps=4x1,stages=3,splitk=2,vec=1x8x2
      tile=32x64x4,warps=2x1,stages=2,splitk=2,vec=1x8x8 tile=128x32x16,warps=4x1,stages=2,splitk=1,vec=1x4x2)
    math(EXPR place "${place} + 1")
    add_verify_test(scan.${place} scan SHARED 10 --family scan --config ${config})
  endforeach()
  add_verify_test(scan.tokens scan_tokens SHARED 3 --family scan --config tile=64x32x2,warps=4x1,stages=2,splitk=2,vec=1x8x8)
  # Clusters: more blocks than warps and fewer, steps that come again and blocks that have none; copies and lanes in any order.
  set(place 0)
  foreach(config
      tile=64x64x16,warps=2x1,stages=2,splitk=1,vec=1x8x4,cluster=7 tile=64x32x8,warps=4x1,stages=3,splitk=1,vec=1x8x2,cluster=2
      tile=8x64x8,warps=1x1,stages=4,splitk=1,vec=1x8x2,cluster=8)
    math(EXPR place "${place} + 1")
    add_verify_test(scan.cluster_${place} scan SHARED 10 --family scan --config ${config}
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${place} TRIGEN_EMULATED_LANES=random:${place})
  endforeach()
  add_verify_test(scan.cluster_tokens scan_tokens SHARED 3 --family scan --config tile=64x32x2,warps=4x1,stages=2,splitk=1,vec=1x8x8,cluster=4)
endif()

# newton_schulz by panels that stay and panels that pass, 2 to 16 warps, more of them along either side.
if(TARGET trigen_emulator AND TARGET trigen_program)
  set(place 0)
  foreach(config
      tile=128x32x16,warps=2x2,stages=1,splitk=1,vec=1x1x1 tile=128x64x16,warps=4x2,stages=2,splitk=1,vec=1x1x1
      tile=128x128x16,warps=2x4,stages=2,splitk=1,vec=1x1x1 tile=128x32x16,warps=8x2,stages=2,splitk=1,vec=1x1x1)
    math(EXPR place "${place} + 1")
    add_verify_test(newton_schulz.${place} newton_schulz TURNS SHARED 12 --limit 1e9 --family newton_schulz_sm80 --config ${config})
  endforeach()
  # Clusters, with lanes in any order.
  foreach(run 32x16,warps=4x2:1:2 32x16,warps=2x2:1:4 64x16,warps=4x2:2:2 32x16,warps=4x2:2:4)
    name_parts(${run} tile stages cluster)
    math(EXPR place "${place} + 1")
    add_verify_test(newton_schulz.${place} newton_schulz TURNS SHARED 12 --limit 1e9 --family newton_schulz_sm80
                    --config tile=128x${tile},stages=${stages},splitk=1,vec=1x1x1,cluster=${cluster}
                    ENVIRONMENT TRIGEN_EMULATED_LANES=random:${place} TRIGEN_EMULATED_ASYNC=shuffled:${place})
  endforeach()
  # The same by wgmma: each count of blocks, panels that stay and that pass, late copies. A kernel compiles for eight seconds; with TURNS an
  # even number would give the same half of the list to every run, twice.
  foreach(run 256:2:0 256:1:2 256:1:4 256:2:4 256:1:8 256:2:2 256:2:8)
    name_parts(${run} tile stages cluster)
    math(EXPR place "${place} + 1")
    add_verify_test(newton_schulz.${place} newton_schulz_sm90 TURNS SHARED 7 --limit 1e9 --family newton_schulz_sm90
                    --config tile=${tile}x64x16,warps=8x1,stages=${stages},splitk=1,vec=1x1x1,cluster=${cluster},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_LANES=random:${place} TRIGEN_EMULATED_ASYNC=shuffled:${place})
  endforeach()
endif()

# gram by the same tiles: parts that a second launch adds, whole tiles, squares of blocks, slices; f32 data.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(config 128x256:8:4:3:8:2 128x256:8:4:5:2:1 128x128:8:6:1:2:4 64x64:4:2:3:2:3 64x64:4:5:1:8:1 64x128:4:2:1:8:1 64x128:4:9:1:2:1 128x128:8:6:2:8:2)
    name_parts(${config} tile warps stages split vec cluster)
    add_verify_test(gram.${tile}_${split}_${cluster}_${vec} gram_tiles TURNS SHARED 4
                    --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${split},vec=8x8x${vec},cluster=${cluster},blocks=1)
  endforeach()
  foreach(config 6:8:1 4:2:4)  # warpgroups that take turns: several tiles a block
    name_parts(${config} stages vec cluster)
    add_verify_test(gram.turns_${cluster} gram_turns SHARED 8 --limit 2e9
                    --family wgmma_sm90 --config tile=128x128x64,warps=4x1,stages=${stages},splitk=1,vec=8x8x${vec},cluster=${cluster},blocks=1)
  endforeach()
  add_verify_test(gram.f32 gram_f32 SHARED 4)
endif()

# gram by blocks that sum whole triangles, one to eight warps for a piece of their parts, and by clusters that share one (copies and lanes
# in any order).
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run gram_triangle:192x192:4:3:2:1:3 gram_triangle:192x192:2:9:8:1:3 gram_triangle:192x192:3:40:2:1:8
              gram_triangle:192x192:4:20:8:1:4 gram_triangle384:384x128:6:1:8:6:12 gram_triangle384:384x128:2:1:2:6:6)
    name_parts(${run} list tile stages split vec cluster sms)
    add_verify_test(${list}.${tile}_${split}_${vec} ${list} SHARED 2
                    --family wgmma_sm90 --config tile=${tile}x64,warps=8x1,stages=${stages},splitk=${split},vec=8x8x${vec},cluster=${cluster},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=${sms})
  endforeach()
  add_verify_test(gram_triangle_odd gram_triangle_odd
                  --family wgmma_sm90
                  --config tile=192x192x64,warps=8x1,stages=4,splitk=2,vec=1x1x1,cluster=1,blocks=1,activations=packed)
endif()

# Contiguous tokens as they lie: loads of a block's own, of pairs, of squares and of slices.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 128x128:8:5:7:8:1 128x256:8:4:2:2:2 128x128:8:6:1:8:4 64x64:4:3:4:2:4 64x64:4:5:1:8:1 64x128:4:3:1:8:1 128x128:8:4:3:1:3)
    name_parts(${run} tile warps stages split vec cluster)
    add_verify_test(grad_weight.tokens_${tile}_${split}_${cluster} grad_weight_tokens SHARED 4
                    --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${split},vec=8x8x${vec},cluster=${cluster},blocks=1)
  endforeach()
endif()

# A device of one cluster of four, which makes all pieces: dy's shifted panels come into stages that were read before, and blocks
# that drop a piece do not lose their place in the ring.
if(TARGET trigen_emulator AND TARGET trigen_program)
  add_verify_test(grad_weight.one_cluster grad_weight SHARED 8
                  --family wgmma_sm90 --config tile=128x128x64,warps=8x1,stages=6,splitk=2,vec=8x8x8,cluster=4,blocks=1
                  ENVIRONMENT TRIGEN_EMULATED_SMS=4)
endif()

# Whole batches in a panel.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 6:5 6:40 2:1)
    name_parts(${run} stages split)
    add_verify_test(grad_weight.stacked_${stages}_${split} grad_weight_stacked SHARED 8
                    --family wgmma_sm90 --config tile=64x64x64,warps=8x1,stages=${stages},splitk=${split},vec=8x8x2,cluster=1,blocks=1)
  endforeach()
endif()

# Batches in a panel whose rows threads bring; whole triangles by a block (copies and lanes in any order).
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 5:3 2:1 4:40)
    name_parts(${run} stages split)
    add_verify_test(grad_weight.stacked_rows_${stages}_${split} grad_weight_stacked_rows SHARED 3
                    --family wgmma_sm90 --config tile=64x64x64,warps=8x1,stages=${stages},splitk=${split},vec=1x1x1,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=3)
  endforeach()
  foreach(run 4:3 3:2 2:1)
    name_parts(${run} stages split)
    add_verify_test(grad_weight.triangle_${stages} grad_weight_triangle SHARED 3
                    --family wgmma_sm90 --config tile=192x192x64,warps=8x1,stages=${stages},splitk=${split},vec=8x8x1,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=3)
  endforeach()
endif()

# Copies that land in an order drawn from a seed, of stages that one warpgroup alone reads: a wait that takes the phase before for
# the one asked for (templates/wgmma_sm90.h, skips_blocks). Without that rule each of these runs fails.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 3:2 4:1 5:3)
    name_parts(${run} stages seed)
    add_verify_test(skips.${stages} skips
                    --family wgmma_sm90 --config tile=128x64x64,warps=8x1,stages=${stages},splitk=1,vec=8x8x8,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_SMS=1 TRIGEN_EMULATED_ASYNC=shuffled:${seed})
  endforeach()
endif()

# Warps that wait for stages that they do not read, and let go of them: lanes of one warp far ahead of others. Where a warp does not
# stay together there (templates/persistent/ring.cuh, stay_together), some of these runs end in a deadlock.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run sm_90a:wgmma_sm90:128x64x64:8x1:2:8x8x8:residual sm_90a:wgmma_split_sm90:128x128x64:8x1:2:1x1x1:split
              sm_90a:wgmma_tf32_sm90:64x128x32:1x8:3:4x4x4:tf32 sm_120a:mma_tma_sm90:256x128x64:4x2:2:8x8x8:mma_tma)
    name_parts(${run} target family tile warps stages vec list)
    foreach(seed 9 12 14 16)
      set(name emulated.together.${family}_${seed})
      add_test(NAME ${name}
               COMMAND trigen_program verify --device emulated:${target} --arch ${target} --limit 1e9 --family ${family}
                       --problems ${CMAKE_CURRENT_SOURCE_DIR}/problems_together_${list}.txt
                       --config tile=${tile},warps=${warps},stages=${stages},splitk=1,vec=${vec},cluster=1,blocks=1)
      set_tests_properties(${name} PROPERTIES LABELS emulated TIMEOUT 900 SKIP_RETURN_CODE 3 ENVIRONMENT
          "TRIGEN_CACHE=${CMAKE_BINARY_DIR}/tests/emulated-together-${family}.db;TRIGEN_EMULATED_SMS=1;TRIGEN_EMULATED_ASYNC=early;TRIGEN_EMULATED_LANES=random:${seed}")
    endforeach()
  endforeach()
endif()

# Slices of a tile's depth, whose blocks add their sums: tiles of 64 x 64, 64 x 128 and 128 x 128, clusters that share out a tile's rows
# evenly and not, blocks alone, whose output leaves by TMA or not. Copies and lanes in any order.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 64x64:4:2:1:2 64x64:4:2:1:8 64x64:4:2:3:8 64x64:4:11:6:2 64x64:4:3:8:1 64x128:4:2:1:1 64x128:4:9:1:2 64x128:4:2:1:8
              128x128:8:6:2:8 128x128:8:2:3:2)
    name_parts(${run} tile warps stages slices vec)
    set(name grad_weight.slices_${tile}_${slices}_${vec})
    add_verify_test(${name} grad_weight_slices SHARED 3
                    --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${slices},vec=8x8x${vec},cluster=${slices},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:4 TRIGEN_EMULATED_LANES=random:4)
  endforeach()
endif()

# Tiles of 192 columns, one for a block: with few stages and with all, output by TMA, in pairs and in single elements; f32 data.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 128x192:8:3:8 128x192:8:5:2 64x192:4:2:8 64x192:4:7:1)
    name_parts(${run} tile warps stages vec)
    add_verify_test(three_panels.${tile}_${stages} three_panels SHARED 8 --limit 2e8
                    --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,vec=8x8x${vec},cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:4 TRIGEN_EMULATED_LANES=random:4)
  endforeach()
  foreach(run 128x192:8:5 64x192:4:7)
    name_parts(${run} tile warps stages)
    add_verify_test(three_panels.band_${tile} three_panels_band SHARED 2 --limit 2e8
                    --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,vec=8x8x1,cluster=1,blocks=1)
    add_verify_test(three_panels.tf32_${tile} tf32_grad_weight SHARED 2
                    --family wgmma_tf32_sm90 --config tile=${tile}x32,warps=${warps}x1,stages=${stages},splitk=1,vec=4x4x1,cluster=1,blocks=1)
  endforeach()
endif()

# Fitted tiles: all widths, two stages and all, copies and lanes in any order.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 64x80:4:12 64x96:4:2 64x112:4:3 64x144:4:8 64x160:4:2 64x176:4:7 128x80:8:2 128x96:8:8 128x112:8:3 128x144:8:6 128x160:8:2 128x176:8:5)
    name_parts(${run} tile warps stages)
    add_verify_test(fitted.${tile} fitted TURNS SHARED 5 --limit 2e8
                    --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,vec=8x8x8,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:4 TRIGEN_EMULATED_LANES=random:4)
  endforeach()
endif()

# Slices of the depth of two row tiles by two to four blocks: rings of few stages and of many, sums of all widths, copies that land in any order.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run slices:64x64:2:2:8x8x8: slices:64x64:8:3:8x8x8: slices:64x128:3:4:8x8x8: slices:64x192:2:2:8x8x8: slices:64x256:2:2:8x8x8: slices_tokens:64x64:3:2:8x8x8: slices_tokens:64x128:2:3:8x8x8: slices_packed:64x64:3:2:1x1x1:,weights=packed,activations=packed)
    name_parts(${run} problems tile stages blocks vec paths)
    foreach(async late shuffled:4)
      string(REPLACE ":" "_" name ${problems}.${tile}_${stages}_${async})
      add_verify_test(${name} ${problems} SHARED 10
                      --family wgmma_sm90 --config tile=${tile}x64,warps=4x1,stages=${stages},splitk=${blocks},vec=${vec},cluster=${blocks},blocks=1${paths}
                      ENVIRONMENT TRIGEN_EMULATED_ASYNC=${async})
    endforeach()
  endforeach()
endif()

# wgmma_tf32_sm90, which small problems are not given: tiles of forward and grad_input (tokens x features, stages, blocks of a
# cluster), and of grad_weight (the last two: parts, elements of a store), squares and slices among them, and whole batches in a panel.
if(TARGET trigen_emulator AND TARGET trigen_program)
  set(runs)
  foreach(tile 256x128:4:1 256x128:4:2 192x128:4:1 128x128:5:2 64x128:8:1 256x64:5:2 128x64:8:1)
    list(APPEND runs forward:${tile}:4x4x4 grad_input:${tile}:1x4x4)
  endforeach()
  foreach(tile 256x128:4:2 192x128:4:1 128x64:3:2 64x128:2:1 64x64:8:1)
    list(APPEND runs taps_forward:${tile}:1x4x4 taps_grad_input:${tile}:1x4x4)
  endforeach()
  foreach(run ${runs} packed:256x128:4:2:1x4x4 packed:64x128:8:1:1x4x4 grad_weight:128x256:4:1:3:8 grad_weight:128x256:3:2:1:8 grad_weight:128x128:6:1:5:1
          grad_weight:128x128:6:4:2:8 grad_weight:128x128:2:3:3:1 grad_weight:64x64:5:1:1:8 grad_weight:64x64:11:2:2:1 grad_weight:64x128:9:1:1:1)
    name_parts(${run} op tile stages cluster last vec)
    if(op STREQUAL grad_weight)
      set(warps 8)
      if(tile MATCHES "^64x")
        set(warps 4)
      endif()
      set(rest "warps=${warps}x1,stages=${stages},splitk=${last},vec=4x4x${vec}")
    else()
      string(REGEX REPLACE ".*x" "" features ${tile})
      math(EXPR warps "${features} / 16")
      set(rest "warps=1x${warps},stages=${stages},splitk=1,vec=${last}")
    endif()
    set(paths)
    if(op STREQUAL packed OR op STREQUAL taps_forward)
      set(paths ",weights=packed")
    endif()
    string(REPLACE ":" "_" name ${op}.${tile}_${stages}_${cluster})
    add_verify_test(tf32.${name} tf32_${op} TURNS SHARED 4
                    --family wgmma_tf32_sm90 --config tile=${tile}x32,${rest},cluster=${cluster},blocks=1${paths}
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:5 TRIGEN_EMULATED_LANES=random:5)
  endforeach()
  add_verify_test(tf32.taps_copied tf32_taps_copied SHARED 2 --family wgmma_tf32_sm90)
  add_verify_test(tf32.stacked tf32_stacked SHARED 2
                  --family wgmma_tf32_sm90 --config tile=64x64x32,warps=8x1,stages=6,splitk=5,vec=4x4x1,cluster=1,blocks=1
                  ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:5 TRIGEN_EMULATED_LANES=random:5)
endif()

# Taps on wide tiles: products of four widths in one tile, pairs of blocks that share the weights. Small ones: four blocks of the input
# on their way.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(config 256x128:8:3:1 256x128:8:4:2 128x64:4:3:1 64x64:4:3:1)
    name_parts(${config} tile warps stages cluster)
    string(REPLACE ":" "_" name ${config})
    add_verify_test(taps.${name} taps SHARED 8
                    --limit 2e8 --family wgmma_taps_sm90 --config tile=${tile}x64,warps=1x${warps},stages=${stages},splitk=1,vec=1x8x8,cluster=${cluster},blocks=1)
  endforeach()
  # Buffers for one or some of a tile's panels, and for all.
  foreach(config 256x128:8:4:2 128x64:4:3:1)
    name_parts(${config} tile warps stages cluster)
    string(REPLACE ":" "_" name ${config})
    add_verify_test(taps.exchange.${name} taps_exchange SHARED 6
                    --limit 2e8 --family wgmma_taps_sm90 --config tile=${tile}x64,warps=1x${warps},stages=${stages},splitk=1,vec=1x8x8,cluster=${cluster},blocks=1)
  endforeach()
  # Slices: clusters of two blocks to four, one and two warpgroups, rings of few stages and of many. Copies and lanes in any order.
  foreach(run 64x64:4:12:2 64x64:4:4:3 64x64:4:2:4 64x128:8:8:2 64x128:8:3:4)
    name_parts(${run} tile warps stages slices)
    add_verify_test(taps.slices_${tile}_${stages}_${slices} taps_slices SHARED 4
                    --family wgmma_taps_sm90 --config tile=${tile}x64,warps=1x${warps},stages=${stages},splitk=${slices},vec=1x8x8,cluster=${slices},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:4 TRIGEN_EMULATED_LANES=random:4)
  endforeach()
  # Contexts of at most 64 tokens with all taps of W in the ring, several tiles for each block; by rows alone, as one config reads one layout.
  foreach(run 64x128:8:16 64x64:4:3)
    name_parts(${run} tile warps stages)
    add_verify_test(taps.short_${tile}_${stages} taps_short SHARED 8
                    --family wgmma_taps_sm90 --config tile=${tile}x64,warps=1x${warps},stages=${stages},splitk=1,vec=1x8x8,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:5 TRIGEN_EMULATED_LANES=random:5 TRIGEN_EMULATED_SMS=3)
  endforeach()
  # With the model's choice.
  foreach(list weight weight_few weight_tf32 odd short_copied)
    add_verify_test(taps.${list} taps_${list} SHARED 8
                    --limit 2e8 --family wgmma_taps_sm90)
  endforeach()
  # grad_weight of two to four taps and of groups of eight, and the same of f32 data as tf32. Copies and lanes in any order, few blocks with
  # many tiles; the last part is `raster`.
  foreach(run few2:128x128x64:4:8x8x2: few2:128x128x64:6:8x8x2:1 few3:128x192x64:3:8x8x1: few4:128x256x64:5:8x8x4: few4:128x256x64:4:8x8x4:1
              groups:64x512x64:3:8x8x4: tf32_2:128x256x32:3:4x4x4: tf32_2:128x128x32:6:4x4x4:1 tf32_3:128x192x32:4:4x4x1: tf32_8:64x512x32:4:4x4x4:)
    name_parts(${run} list tile stages vec raster)
    if(raster)
      string(PREPEND raster ",raster=")
    endif()
    add_verify_test(taps.weight_${list}_${tile}_${stages} taps_weight_${list} SHARED 3
                    --limit 2e8 --family wgmma_taps_sm90 --config tile=${tile},warps=4x2,stages=${stages},splitk=1${raster},vec=${vec},cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:5 TRIGEN_EMULATED_LANES=random:5 TRIGEN_EMULATED_SMS=7)
  endforeach()
endif()

# wgmma_sm90's tiles. exchange: residual, gate and pre beside the output, buffers used again inside a tile (4 stages, and none to spare),
# pairs of blocks, small tiles that a block has several of. f32_weights: those that the product reads itself.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run exchange:128x256:8:4:1 exchange:128x256:8:3:2 exchange:128x128:8:5:2 exchange:64x64:4:12:1
              f32_weights:128x256:8:3:1 f32_weights:128x128:8:2:2 f32_weights:64x256:4:3:1 f32_weights:64x64:4:8:1)
    name_parts(${run} list tile warps stages cluster)
    add_verify_test(${list}.${tile}_${warps}_${stages}_${cluster} ${list} SHARED 6
                    --limit 3e8 --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,vec=8x8x8,cluster=${cluster},blocks=1)
  endforeach()
endif()

# Columns one by one, and those that are left; copies that land in any order.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 128x64:8:3:1 128x64:8:3:2)
    name_parts(${run} tile warps stages cluster)
    add_verify_test(columns.${tile}_${cluster} columns SHARED 3
                    --limit 3e8 --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,raster=1,vec=8x8x8,cluster=${cluster},blocks=1
                    ENVIRONMENT "TRIGEN_EMULATED_SMS=4;TRIGEN_EMULATED_ASYNC=shuffled:6")
  endforeach()
endif()

# Boxes of 32 and 16 features: forward and grad_input by tiles, by pairs of blocks and by slices; grad_weight by parts, by squares and
# pairs of blocks, by slices, by warpgroups that take turns. Copies that land in any order.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 128x256:8:3:1:1:32 128x128:8:3:1:2:16 64x128:4:4:2:2:32 64x192:4:2:1:1:16)
    name_parts(${run} tile warps stages split cluster box)
    add_verify_test(boxes.${tile}_${box} boxes SHARED 4
                    --limit 3e8 --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${split},vec=8x8x8,cluster=${cluster},box=${box},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:2)
  endforeach()
  foreach(run 128x128:8:4:2:2:1:32 128x256:8:3:2:8:1:16 128x256:8:3:1:8:2:32 128x128:8:4:1:8:4:32 64x64:4:6:2:8:2:32 64x128:4:3:1:8:1:32 128x128:4:4:1:8:1:32)
    name_parts(${run} tile warps stages split vec cluster box)
    set(name boxes.weight_${tile}_${warps}_${cluster})
    add_verify_test(${name} boxes_weight SHARED 4
                    --limit 3e8 --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${split},vec=8x8x${vec},cluster=${cluster},box=${box},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:3)
  endforeach()
  add_verify_test(grad_weight.turns turns SHARED 3
                  --limit 1e9 --family wgmma_sm90 --config tile=128x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x2,cluster=4,blocks=1
                  ENVIRONMENT TRIGEN_EMULATED_SMS=8)
endif()

# Strips of what stands for W: pairs of row tiles, pairs of blocks, small tiles.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 128x256:8:3:1 128x128:8:4:2 128x64:8:6:1 64x128:4:6:1 64x64:4:3:1)
    name_parts(${run} tile warps stages cluster)
    add_verify_test(strips.${tile}_${stages}_${cluster} strips SHARED 7
                    --family wgmma_sm90 --limit 2e8
                    --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,vec=1x8x8,cluster=${cluster},blocks=1,weights=packed)
  endforeach()
endif()

# Numbers of a Toeplitz matrix in shared memory: one and two multiplying warpgroups, rings of two stages and more, slices. Copies and lanes
# in any order, blocks with several tiles and heads.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 128x256:8:5:1:1 128x128:8:3:1:1 128x64:8:2:1:1 64x256:4:4:1:1 64x128:4:2:2:2)
    name_parts(${run} tile warps stages split cluster)
    add_verify_test(numbers.${tile}_${stages} numbers SHARED 10
                    --limit 3e8 --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${split},vec=1x8x8,cluster=${cluster},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_SMS=3 TRIGEN_EMULATED_ASYNC=shuffled:2 TRIGEN_EMULATED_LANES=random:3)
  endforeach()
endif()

# Gradients of what stands for W by tiles: whole ones and parts, narrow ones, pairs and squares of blocks.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(config 256:4:1:1 256:3:5:1 256:4:2:2 128:6:1:1 128:3:5:1 128:6:4:4)
    name_parts(${config} tile stages split cluster)
    string(REPLACE ":" "_" name ${config})
    add_verify_test(forms_weight.${name} forms_weight SHARED 12
                    --limit 1e9 --family wgmma_sm90 --config tile=128x${tile}x64,warps=8x1,stages=${stages},splitk=${split},vec=8x8x1,cluster=${cluster},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_SMS=12 TRIGEN_EMULATED_ASYNC=shuffled:2)
  endforeach()
  # A band's by slices and by warpgroups that take turns.
  foreach(run 64x64:4:6:3:3 64x128:4:3:1:1 128x128:8:4:2:2 128x128:4:6:1:1 128x128:4:4:1:4)
    name_parts(${run} tile warps stages split cluster)
    set(name forms_band.${tile}_${warps}_${cluster})
    add_verify_test(${name} forms_band SHARED 5
                    --limit 1e9 --family wgmma_sm90 --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${split},vec=8x8x1,cluster=${cluster},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_SMS=8 TRIGEN_EMULATED_ASYNC=shuffled:3)
  endforeach()
endif()

# mma_tma_sm90's tiles, on a device with few multiprocessors: blocks with several tiles.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run sm_90a:128x256:2x4:4 sm_120a:256x128:4x2:2 sm_120a:128x128:2x4:3 sm_100a:64x256:1x4:2 sm_120a:64x64:2x2:2)
    name_parts(${run} target tile warps stages)
    add_verify_test(mma_tma.${tile}_${warps}_${stages} mma_tma SHARED 5 TARGET ${target}
                    --arch ${target} --limit 3e8 --family mma_tma_sm90
                    --config tile=${tile}x64,warps=${warps},stages=${stages},splitk=1,vec=8x8x8,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_SMS=3)
  endforeach()
  add_verify_test(mma_tma.packed mma_tma_packed SHARED 2 TARGET sm_120 --family mma_tma_sm90 ENVIRONMENT TRIGEN_EMULATED_SMS=3)
endif()

# wgmma_split_sm90's two tiles: the model gives small problems rows of 64 alone. rows64: products only.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run split:128:8:3 split:128:8:2 split_rows64:64:4:4 split_rows64:64:4:2)
    name_parts(${run} list rows warps stages)
    add_verify_test(split.${rows}x128_${stages} ${list} SHARED 8
                    --family wgmma_split_sm90 --config tile=${rows}x128x64,warps=${warps}x1,stages=${stages},splitk=1,vec=1x1x1,cluster=1,blocks=1)
  endforeach()
endif()

# Its grad_weight that splits inside: whole tiles, parts that threads add one after the other, and runs of them.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(split 1 3 17)
    add_verify_test(split.inside_${split} split_inside SHARED 5
                    --family wgmma_split_sm90 --config tile=128x128x64,warps=8x1,stages=2,splitk=${split},vec=4x4x1,cluster=1,box=32,blocks=1)
  endforeach()
endif()

# wgmma_resident_sm90: rows of blocks, panels of a stage, warpgroups, stages, runs (0) or turns (1), W by TMA (8) or by
# threads (1). The tightest rings, where a stage comes back at once.
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 64:64:3:6:0:8 64:256:1:2:1:1 128:128:1:2:1:8 128:64:3:6:0:8 192:64:2:4:1:8)
    name_parts(${run} rows width warps stages raster vec)
    add_verify_test(resident.${rows}x${width}_${warps}_${stages} resident${rows} SHARED 3
                    --limit 3e8 --family wgmma_resident_sm90 --config tile=${rows}x${width}x64,warps=4x${warps},stages=${stages},splitk=1,raster=${raster},vec=${vec}x8x8,cluster=1,blocks=1)
  endforeach()
  # Two warpgroups that share a panel: the tightest ring, whose begin W takes, and one that only its end is in; runs of more heads
  # than blocks, turns (copies and lanes in any order), claims and packed W.
  foreach(run 2:0:2 4:0:1 3:1:3)
    name_parts(${run} stages raster sms)
    add_verify_test(resident.256x64_${stages} resident256 --limit 3e8 --family wgmma_resident_sm90
                    --config tile=256x64x64,warps=8x1,stages=${stages},splitk=1,raster=${raster},vec=8x8x8,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=${sms})
  endforeach()
  add_verify_test(resident.256_claims resident_packed --limit 3e8 --family wgmma_resident_sm90
                  --config tile=256x64x64,warps=8x1,stages=3,splitk=1,raster=2,vec=1x8x8,cluster=1,blocks=1,weights=packed
                  ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:3 TRIGEN_EMULATED_LANES=random:3 TRIGEN_EMULATED_SMS=2)
  add_verify_test(resident.packed resident_packed --limit 3e8 --family wgmma_resident_sm90 ENVIRONMENT TRIGEN_EMULATED_SMS=2)
  # Narrow boxes.
  foreach(run 64:1:2:16 64:2:6:32 128:2:4:16)
    name_parts(${run} width warps stages box)
    add_verify_test(resident.boxes_${width}_${stages}_${box} resident_boxes --family wgmma_resident_sm90
                    --config tile=128x${width}x64,warps=4x${warps},stages=${stages},splitk=1,raster=1,vec=8x8x8,cluster=1,box=${box},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=3)
  endforeach()
  # W of several blocks by threads, in one round of loads and in two (copies and lanes in any order).
  add_verify_test(resident.staged resident_staged SHARED 4 --family wgmma_resident_sm90
                  ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:5 TRIGEN_EMULATED_LANES=random:5 TRIGEN_EMULATED_SMS=3)
  # Stages that blocks claim: the tightest ring, one that groups do not divide, panels side by side (copies and lanes in any order).
  foreach(run 64:1:2 64:2:6 128:3:9 256:1:3)
    name_parts(${run} width warps stages)
    add_verify_test(resident.claims_${width}_${warps} resident_claims SHARED 4 --family wgmma_resident_sm90
                    --config tile=64x${width}x64,warps=4x${warps},stages=${stages},splitk=1,raster=2,vec=1x8x8,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=${warps})
  endforeach()
  add_verify_test(resident.weights resident_weights --family wgmma_resident_sm90)
  add_verify_test(resident.residual resident_residual --family wgmma_resident_sm90)
endif()

# Activations copied into the workspace and back.
if(TARGET trigen_emulator AND TARGET trigen_program)
  add_verify_test(copied copied SHARED 6 --family wgmma_sm90)
  add_verify_test(copied.tf32 copied_tf32 SHARED 2 --family wgmma_tf32_sm90)
  add_verify_test(copied.taps copied_taps SHARED 3 --family wgmma_taps_sm90)
endif()

# grad_weight of rows that begin at any element, which threads bring: stages, parts of a sum (copies and lanes in any order).
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 5:3 3:1 2:2)
    name_parts(${run} stages split)
    add_verify_test(weight_rows.${stages} weight_rows SHARED 10 --family wgmma_sm90
                    --config tile=128x128x64,warps=8x1,stages=${stages},splitk=${split},vec=1x1x1,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=${split})
  endforeach()
endif()

# Heads that begin inside a piece of 16 bytes: tiles, clusters, slices, boxes (copies and lanes in any order).
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 128x256:8:3:1:1:1:64 128x128:8:3:1:2:1:32 64x128:4:4:2:2:1:64 128x256:8:3:1:1:4:64 64x192:4:2:1:1:4:16 64x128:4:4:2:2:4:32)
    name_parts(${run} tile warps stages split cluster begin box)
    set(of_box "")
    if(box LESS 64)
      set(of_box ",box=${box}")
    endif()
    add_verify_test(heads.${tile}_${begin} heads${begin} SHARED 6 --limit 3e8 --family wgmma_sm90
                    --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=${split},vec=8x${begin}x${begin},cluster=${cluster}${of_box},blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=4)
  endforeach()
endif()

# wgmma_rows_sm90: tokens and features of a tile, stages; W packed, and as it lies (copies and lanes in any order).
if(TARGET trigen_emulator AND TARGET trigen_program)
  foreach(run 256x128:8:4 192x128:8:3 128x128:8:2 256x64:4:2)
    name_parts(${run} tile warps stages)
    foreach(width 1 2)
      add_verify_test(rows.${tile}_${width} rows${width} SHARED 8 --limit 2e8 --family wgmma_rows_sm90
                      --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,vec=1x${width}x${width},cluster=1,blocks=1,weights=packed)
    endforeach()
  endforeach()
  add_verify_test(rows.exchange rows_exchange SHARED 2 --limit 2e8 --family wgmma_rows_sm90)
  foreach(run 256x128:8:4 192x128:8:4 128x128:8:6 64x64:4:4)
    name_parts(${run} tile warps stages)
    add_verify_test(rows.direct.${tile} rows_direct SHARED 12 --limit 2e8 --family wgmma_rows_sm90
                    --config tile=${tile}x64,warps=${warps}x1,stages=${stages},splitk=1,vec=8x1x1,cluster=1,blocks=1
                    ENVIRONMENT TRIGEN_EMULATED_ASYNC=shuffled:${stages} TRIGEN_EMULATED_LANES=random:${stages} TRIGEN_EMULATED_SMS=2)
  endforeach()
endif()

# Every family over op x data type x layout x taps x epilogue; says which cells a family does not serve.
if(TARGET trigen_emulator AND TARGET trigen_check)
  trigen_test(emulated matrix_test DEPENDS trigen_check TIMEOUT 600
              PROPERTIES ENVIRONMENT TRIGEN_CACHE=${CMAKE_BINARY_DIR}/tests/emulated-matrix.db)
  add_dependencies(emulated_matrix_test trigen_emulator)
endif()

# First choices of big problems, and kernels for all sizes, of every target.
if(TARGET trigen_emulator AND TARGET trigen_check)
  trigen_test(emulated choices_test DEPENDS trigen_check
              PROPERTIES ENVIRONMENT TRIGEN_CACHE=${CMAKE_BINARY_DIR}/tests/emulated-choices.db)
  add_dependencies(emulated_choices_test trigen_emulator)
endif()
