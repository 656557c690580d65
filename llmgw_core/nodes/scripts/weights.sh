# weights.sh: the weights that llmgw keeps on a node, below $base/weights:
#   MODEL/VERSION/FILE…            files that were checked, under their final names
#   .verified/MODEL/VERSION        a line "SHA256 SIZE MTIME FILE" for each of them
#   .complete/MODEL/VERSION        the same for a version that is whole; written last
#   .partial/MODEL/VERSION/SHA256  half files, and .lock, held by whoever writes them
# Statuses: 28 no space, 64 bad order, 65 bad checksum, 68 mirror out of reach, 69 nothing to fetch with,
# 70 nothing to make sums with, 74 cannot write, 75 somebody else is at it, 77 refused by the mirror.

weights_of() { # MODEL/VERSION -> its places
  case $1 in
    */*/* | .* | */.* | /* | */ | '' | *[!A-Za-z0-9._+/-]*) fail 64 "$1 names no version of weights" ;;
    */*) ;;
    *) fail 64 "$1 names no version of weights" ;;
  esac
  whole=$base/weights/$1
  verified=$base/weights/.verified/$1
  complete=$base/weights/.complete/$1
  part=$base/weights/.partial/$1
}

usable_file() { # a path below a version
  case /$1/ in
    *//* | */./* | */../*) return 1 ;;
  esac
}

stamp_of() { # FILE -> stamp, "SIZE MTIME", empty where it is no file
  stamp=
  [ ! -f "$1" ] || stamp=$(stat -L -c '%s %Y' "$1" 2>/dev/null)
}

is_verified() { # FILE SIZE SHA256: whether it lies there as it was when its sum was checked
  stamp_of "$whole/$1"
  [ "${stamp%% *}" = "$2" ] || return 1
  cat "$verified" "$complete" 2>/dev/null | grep -qxF -e "$3 $stamp $1"
}

make_folders() { # FOLDER…
  mkdir -p "$@" 2>/dev/null || fail 74 "cannot create $1: the disk is full, or no permission"
}

free_bytes() { # -> free, where weights go; empty where df does not say
  free=$(df -Pk "$base/weights" 2>/dev/null | awk 'NR > 1 && $(NF - 2) ~ /^[0-9]+$/ { print $(NF - 2); exit }')
  case $free in
    '' | *[!0-9]*) free= ;;
    *) free=$((free * 1024)) ;;
  esac
}

shown() { # BYTES -> shown, for people
  if [ "$1" -ge 1073741824 ]; then
    shown="$(($1 / 1073741824)).$(($1 % 1073741824 * 10 / 1073741824)) GiB"
  elif [ "$1" -ge 1048576 ]; then
    shown="$(($1 / 1048576)).$(($1 % 1048576 * 10 / 1048576)) MiB"
  else
    shown="$1 bytes"
  fi
}

room_for() { # BYTES MARGIN VERSION -> why, where they do not fit
  why=
  free_bytes
  [ -n "$free" ] && [ "$1" -gt 0 ] && [ $(($1 + $2)) -gt "$free" ] || return 0
  shown "$1"
  why="the node's disk is too full for $3: it needs $shown more"
  shown "$2"
  [ "$2" -eq 0 ] || why="$why and $shown of margin"
  shown "$free"
  why="$why, and $base/weights has $shown free; free some space there"
  return 1
}

# One writer of half files at a time. Where there is flock, what was started holds the lock as well, so
# that a download whose script was killed keeps others out.
hold() { # wait | once
  make_folders "$part"
  (: >>"$part/.lock") 2>/dev/null || fail 74 "cannot write in $part: the disk is full, or no permission"
  exec 7>>"$part/.lock"
  waited=
  while :; do
    flock -n 7 2>/dev/null
    case $? in
      0) return 0 ;;
      1) ;;
      *) ! hold_folder || return 0 ;;
    esac
    [ "$1" = wait ] || return 1
    [ -n "$waited" ] || echo "@@waiting"
    waited=y
    nap 1
  done
}

hold_folder() { # the same by a folder, with who made it
  if mkdir "$part/.lock.d" 2>/dev/null; then
    stat_of $$
    echo "$$ $p_start $boot" >"$part/.lock.d/holder"
    held=y
    return 0
  fi
  lives "$part/.lock.d/holder" || lives "$part/.lock.d/child" || {
    nap 1 # it may have been made this moment
    lives "$part/.lock.d/holder" || lives "$part/.lock.d/child" || {
      mv "$part/.lock.d" "$part/.gone.$$" 2>/dev/null && rm -rf "$part/.gone.$$"
    }
  }
  return 1
}

lives() { # FILE with "PID START BOOT"
  l_pid='' l_start='' l_boot=''
  { read -r l_pid l_start l_boot _ <"$1"; } 2>/dev/null
  [ -n "$l_boot" ] && alive "$l_pid" "$l_start" "$l_boot"
}

let_go() {
  [ -z "${held:-}" ] || rm -rf "$part/.lock.d"
  held=
}
