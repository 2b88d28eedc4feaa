package main

import (
	"log/slog"
	"runtime/debug"
)

// memoryShare is the part of a container's memory, in percent, that Go may fill
// before it collects harder. The rest is for what the kernel counts and Go doesn't:
// buffers of sockets and pipes, page tables, pages of the program's file.
const memoryShare = 90

// limitMemory keeps a push of many clusters from ending in an OOM kill. Injection
// sets GOMEMLIMIT to the whole limit of the container; a lower one is obeyed.
// container gives that limit in bytes, or an error where there is none.
func limitMemory(log *slog.Logger, container func() (uint64, error)) {
	limit, err := container()
	if err != nil {
		log.Debug("no memory limit", "because", err)
		return
	}
	share := int64(limit / 100 * memoryShare)
	if share < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(share)
		log.Info("memory limit", "container", limit, "heap", share)
	}
}
