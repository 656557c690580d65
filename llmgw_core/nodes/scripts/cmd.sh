# cmd SUP_PID SUP_START BOOT TOKEN DIR: writes the record, then becomes the engine. What follows below
# this head is made for each start.
IFS= read -r stat </proc/$$/stat || exit 74
# shellcheck disable=SC2086
set -- "$1" "$2" "$3" "$4" "$5" ${stat##*) }
# in place: the blocks were taken before the start, so a full disk cannot lose a running engine
printf '%s %s %s %s %s %s\n' "$1" "$2" "$$" "${25}" "$3" "$4" 1<>pid.new && mv -f pid.new pid || exit 74
hard=$(ulimit -Hn)
case $hard in
  unlimited | ???????*) hard=1048576 ;;
esac
ulimit -n "$hard" 2>/dev/null
LLMGW_INSTANCE=$5
unset stat hard LC_ALL
