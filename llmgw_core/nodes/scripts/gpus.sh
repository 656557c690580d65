# gpus.sh SECONDS: a line for each GPU every so often; ends at once where there is nothing to ask.

amd() {
  for c in /sys/class/drm/card*/device; do
    [ -r "$c/mem_info_vram_total" ] || continue
    amd_card "$c"
  done
}

amd_card() { # DIR: "a ID INDEX TOTAL USED BUSY"
  one "$1/unique_id"
  id=$value
  one "$1/mem_info_vram_total"
  total=$value
  one "$1/mem_info_vram_used"
  used=$value
  one "$1/gpu_busy_percent"
  echo "a $id ${1%/device} $total $used $value"
}

one() {
  value=
  { read -r value <"$1"; } 2>/dev/null
  value=${value:--}
}

main() {
  if command -v nvidia-smi >/dev/null; then
    until orphaned; do
      nvidia-smi --query-gpu=uuid,index,name,memory.total,memory.used,utilization.gpu,driver_version \
        --format=csv,noheader,nounits -l "$1" 2>/dev/null </dev/null
      nap "$1"
    done
  elif [ -e /dev/kfd ]; then
    until orphaned; do
      amd
      nap "$1"
    done
  fi
}

main "$@"
exit
