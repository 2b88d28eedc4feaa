package weather

import (
	"fmt"
	"os"
	"strings"
	"time"
)

const page = `# Bad weather

One worker under bad peers, as ` + "`go test ./internal/meshtest/weather -update`" + ` measured it on %s, Linux %s. The test
fails when memory for each, a turn (5 ms) or a neighbour (twice its quiet value, or the other proxy's, and 5 ms) gets out of bounds.

Memory is anonymous resident memory, at its peak and above what the proxy has at rest; the kernel's socket buffers aren't in it.
A turn is the longest of the worker's event loop, in processor time. The neighbour sends 333
requests a second through the same worker, latencies count from the intended times. The other proxy is at rest and carries
the same requests at the same time: what happens there too is the machine's doing, as everything here shares its processors.

| what | how many | memory MB | each KB | at most | longest turn ms | neighbour's p99 ms: quiet | in it | other proxy |
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
			float64(f.peak-f.rest)/(1<<20), float64(f.each())/(1<<10), f.scene.limit>>10, ms(f.turn), ms(f.quiet), ms(f.weather), ms(f.beside))
	}
	return os.WriteFile("../../../docs/WEATHER.md", []byte(text), 0o644)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
