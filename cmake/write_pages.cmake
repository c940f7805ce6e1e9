# Run at build time by TriptychInstall.cmake: what PROGRAM says of itself -> FOLDER.
function(write_page file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text)
  if(NOT status EQUAL 0 OR text STREQUAL "")
    message(FATAL_ERROR "${PROGRAM} ${ARGN} ended with ${status} and wrote ${file} empty or not at all")
  endif()
  file(WRITE ${FOLDER}/${file} "${text}")
endfunction()

write_page(triptych.1 --help-man)
write_page(triptych.bash completion bash)
write_page(_triptych completion zsh)
write_page(triptych.fish completion fish)
