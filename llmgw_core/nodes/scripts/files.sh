# files.sh VERB …: logs, files and ports of a node.

span() { # DIR -> b1 e1 (log.1) b size (log), in bytes since the start of the run
  tries=0
  while :; do
    b1=0 e1=0 b=0 moving=''
    { read -r b1 e1 b moving <"$1/log.base"; } 2>/dev/null
    [ -n "$moving" ] && [ "$tries" -lt 20 ] || break
    nap 0.05
    tries=$((tries + 1))
  done
  size_of "$1/log"
  end=$((b + size))
  [ -f "$1/log.1" ] || e1=$b1
}

plan() { # OFFSET LIMIT -> from, n1 bytes of log.1 at o1, n2 bytes of log at o2, next
  from=$1 n1=0 o1=0 n2=0 o2=0
  # beyond the end: another run has begun since
  if [ "$from" = - ]; then from=$((end - $2)); elif [ "$from" -gt "$end" ]; then from=0; fi
  oldest=$b
  [ "$e1" -le "$b1" ] || oldest=$b1
  [ "$from" -ge "$oldest" ] || from=$oldest
  next=$from
  if [ "$from" -lt "$e1" ]; then
    o1=$((from - b1)) n1=$((e1 - from))
    [ "$n1" -le "$2" ] || n1=$2
    next=$((from + n1))
  fi
  if [ "$next" -ge "$e1" ]; then
    # what was written while the log was copied is gone
    [ "$next" -ge "$b" ] || next=$b
    o2=$((next - b)) n2=$((end - next))
    [ "$n2" -le $(($2 - n1)) ] || n2=$(($2 - n1))
    next=$((next + n2))
  fi
}

pour() { # DIR: what plan chose
  [ "$n1" -eq 0 ] || tail -c +$((o1 + 1)) "$1/log.1" | head -c "$n1"
  [ "$n2" -eq 0 ] || tail -c +$((o2 + 1)) "$1/log" | head -c "$n2"
}

log() { # DIR OFFSET LIMIT: "NEXT END COUNT", then the bytes
  span "$1"
  plan "$2" "$3"
  echo "$next $end $((n1 + n2))"
  pour "$1"
}

previous() { # DIR OFFSET LIMIT: the same for the log of the run before
  size_of "$1/log.prev"
  b1=0 e1=0 b=0 end=$size
  plan "$2" "$3"
  echo "$next $end $n2"
  [ "$n2" -eq 0 ] || tail -c +$((o2 + 1)) "$1/log.prev" | head -c "$n2"
}

follow() { # DIR OFFSET: one line of base64 for each piece, as it comes
  at=$2
  until orphaned || [ ! -d "$1" ]; do
    span "$1"
    plan "$at" 24576
    if [ $((n1 + n2)) -gt 0 ]; then
      pour "$1" | base64 | tr -d '\n'
      echo
    else
      nap 0.5
    fi
    at=$next
  done
}

ports() { # the sockets that listen, as the kernel lists them
  grep -h ' 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null
  return 0
}

weigh() { # PATH: its size, or of all files below it; nothing where it is not there
  expand "$(decode "$1")"
  if [ -d "$path" ]; then
    find -L "$path" -type f -exec stat -L -c %s {} + 2>/dev/null | {
      sum=0
      while read -r size; do
        sum=$((sum + size))
      done
      echo "$sum"
    }
  elif [ -f "$path" ]; then
    size_of "$path"
    echo "$size"
  fi
}

part() { # PATH OFFSET LENGTH: bytes of a file
  expand "$(decode "$1")"
  [ -f "$path" ] || fail 66 "$path is not there, or no file"
  [ -r "$path" ] || fail 77 "$path may not be read by this user"
  [ "$3" -eq 0 ] || tail -c +$(($2 + 1)) "$path" | head -c "$3"
}

list() { # PATH: "SIZE NAME" for each file below a folder, or "f" for a file; nothing if not there
  expand "$(decode "$1")"
  if [ -d "$path" ]; then
    echo d
    (cd "$path" && find -L . -type f -exec stat -L -c '%s %n' {} + 2>/dev/null) | head -n 10000
  elif [ -f "$path" ]; then
    size_of "$path"
    echo "f $size"
  fi
}

put() { # PATH MODE SIZE: the payload, whole or not at all
  expand "$(decode "$1")"
  mkdir -p "${path%/*}/" || fail 74 "cannot create ${path%/*}"
  part=$path.part.$$
  payload >"$part" && size_of "$part" && [ "$size" -eq "$3" ] && chmod "$2" "$part" && mv -f "$part" "$path" \
    || { rm -f "$part"; fail 74 "cannot write $path"; }
}

main() {
  verb=$1
  case $verb in
    log | previous | follow) # STATE AREA/NAME …
      need_base "$2"
      dir=$base/$3
      shift 3
      "$verb" "$dir" "$@"
      ;;
    ports | weigh | part | list | put)
      shift
      "$verb" "$@"
      ;;
    *) fail 64 "unknown verb $verb" ;;
  esac
}

main "$@"
exit
