package weather

import (
	"fmt"
	"os"
	"strings"
	"time"
)

const page = `# Bad weather

One worker under bad peers, as ` + "`go test ./internal/meshtest/weather -update -envoy PATH`" + ` measured it on %s, Linux %s, and the real
Envoy 1.40 after each, in the same weather with the same configuration. The test
fails when memory for each, a turn (5 ms) or a neighbour (twice its quiet value, or the other proxy's, and 5 ms) gets out of bounds.

Memory is anonymous resident memory, at its peak and above what the proxy has at rest; the kernel's socket buffers aren't in it.
A turn is the longest of the worker's event loop, in processor time. The neighbour sends 333
requests a second through the same worker, latencies count from the intended times. The other proxy is at rest and carries
the same requests at the same time: what happens there too is the machine's doing, as everything here shares its processors.

| what | how many | memory MB | each KB | at most | longest turn ms | neighbour's p99 ms: quiet, in it, other proxy | Envoy: each KB | neighbour's p99 ms |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
`

// write makes docs/WEATHER.md.
func write(all []*figures) error {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	kernel, _, _ := strings.Cut(string(release), "-")
	text := fmt.Sprintf(page, model(), kernel)
	for _, f := range all {
		text += fmt.Sprintf("| %s | %d | %.1f | %.1f | %d | %s | %s | %s | %s |\n", f.scene.title, f.scene.peers,
			mb(f.peak-f.rest), kb(f.each()), f.scene.limit>>10, ms(f.turn), f.neighbour(), f.rival.size(), f.rival.neighbour())
	}
	return os.WriteFile("../../../docs/WEATHER.md", []byte(text), 0o644)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }

func kb(bytes int) float64 { return float64(bytes) / (1 << 10) }
func mb(bytes int) float64 { return kb(bytes) / (1 << 10) }

// size is the memory for each, or in all when not all were there.
func (f *figures) size() string {
	if f.unborn != nil {
		return fmt.Sprintf("%.0f MB when after %v not all were there", mb(f.peak-f.rest), patience)
	}
	return fmt.Sprintf("%.1f", kb(f.each()))
}

// neighbour is what one noticed: before, in the weather, and beside it.
func (f *figures) neighbour() string {
	if f.unborn != nil {
		return "-"
	}
	return ms(f.quiet) + ", " + ms(f.weather) + ", " + ms(f.beside)
}
