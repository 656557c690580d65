# lease.sh: which controller this node belongs to. Behind lib.sh; $root is $base/run.
#   $base/lease        ID TOKEN CLUSTER HOST USER PID STARTED, of who holds it; written under the lock
#   $base/lease.at.ID  BOOT HUNDREDTHS, when ID renewed it last by this node's clock; written by ID alone,
#                      so that a late renewal never harms a new holder's
# A lease is old when it was not renewed for a while, and at once after a restart of the node.

take_lock() { # one writer at a time; held by fd 8 or by the directory .lock.d
  clock
  lock_end=$((now + 1500))
  (: >>"$root/.lock") 2>/dev/null || fail 74 "cannot write in $root: No space left on device, or no permission"
  exec 8>>"$root/.lock"
  while :; do
    flock -n 8 2>/dev/null
    case $? in
      0) return ;;
      1) ;;
      *) mkdir "$root/.lock.d" 2>/dev/null && { locked=y; trap drop_lock EXIT; return; } ;;
    esac
    clock
    if [ "$now" -gt "$lock_end" ]; then
      # Without flock the holder may have died: nothing here holds it for long.
      rmdir "$root/.lock.d" 2>/dev/null || fail 75 "another start has held $root/.lock for 15 s"
    fi
    nap 0.05
  done
}

drop_lock() {
  exec 8>&-
  [ -z "${locked:-}" ] || rmdir "$root/.lock.d" 2>/dev/null
  locked=
}

read_lease() { # -> l_id l_token l_rest; fails where nobody holds it
  l_id='' l_token='' l_rest=''
  { read -r l_id l_token l_rest <"$base/lease"; } 2>/dev/null
  usable_name "$l_id" || {
    l_id=
    return 1
  }
}

find_age() { # -> l_age, hundredths of a second since its renewal; - where the node was restarted since
  l_boot='' l_at='' l_age=-
  { read -r l_boot l_at _ <"$base/lease.at.$l_id"; } 2>/dev/null
  [ "$l_boot" = "$boot" ] || return 0
  case $l_at in
    '' | *[!0-9]*) return 0 ;;
  esac
  clock
  # a clock that went backwards was started anew, as in a container
  [ "$now" -lt "$l_at" ] || l_age=$((now - l_at))
}

tell_lease() { # STATE: the line that lease.py reads
  find_age
  echo "@@lease $1 $l_age $l_id $l_token $l_rest"
}

renew_lease() { # ID; in place, since a full disk would not take another file
  clock
  { printf '%s %-26s\n' "$boot" "$now" 1<>"$base/lease.at.$1"; } 2>/dev/null
}

others_lease() { # ID or "=": whether another than that controller holds this node
  [ "$1" != = ] && read_lease && [ "$l_id" != "$1" ]
}

need_lease() { # ID
  others_lease "$1" || return 0
  drop_lock
  fail 79 "$(tell_lease other)"
}

take_lease() { # ID TOKEN LIMIT HOW WORD… -> lease: ours, other, or none where nothing can be written
  lease=none
  mkdir -p "$root" 2>/dev/null && (: >>"$root/.lock") 2>/dev/null || return 0
  take_lock
  if others_lease "$1"; then
    find_age
    if [ "$4" != force ] && [ "$l_age" != - ] && [ "$l_age" -le "$3" ]; then
      drop_lock
      lease=other
      return
    fi
    tell_lease was
  fi
  write_lease "$@"
  drop_lock
}

write_lease() { # as take_lease, under the lock
  me=$1 my_token=$2
  shift 4
  renew_lease "$me"
  # padded, so that a full disk still takes the next holder's
  if { printf '%-511s\n' "$me $my_token $*" >"$base/lease.new" && mv -f "$base/lease.new" "$base/lease"; } 2>/dev/null \
    || { [ -f "$base/lease" ] && printf '%-511s\n' "$me $my_token $*" 1<>"$base/lease"; } 2>/dev/null; then
    lease=ours
  fi
  rm -f "$base/lease.new"
  for stamp in "$base"/lease.at.*; do
    [ "$stamp" = "$base/lease.at.$me" ] || rm -f "$stamp"
  done
}
