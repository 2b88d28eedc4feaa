package telemetry

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/config"
)

// laneLimit bounds what one worker may have waiting for one file; lines beyond
// it are dropped and counted.
const laneLimit = 4 << 20

// Files are the access log files of a process. A worker appends lines to its
// own lane of a File and never waits; Run writes them out.
type Files struct {
	// Stream gives the way of a streamed log's records; set before the first Compile.
	Stream func(config.LogSink) Send

	workers  int
	interval time.Duration

	mu    sync.Mutex
	files map[string]*File
	out   map[string]io.Writer // "/dev/stdout" and "/dev/stderr"
	taken []batch              // by worker: memory that goes round with the lanes'
	buf   []byte
}

// NewFiles prepares for a number of workers. interval is the time between
// writes; stdout and stderr stand for the files of these names.
func NewFiles(workers int, interval time.Duration, stdout, stderr io.Writer) *Files {
	if interval <= 0 {
		interval = 200 * time.Millisecond
	}
	return &Files{workers: workers, interval: interval, taken: make([]batch, workers), files: make(map[string]*File),
		out: map[string]io.Writer{"/dev/stdout": stdout, "/dev/stderr": stderr}}
}

// File is one open log file.
type File struct {
	path    string
	to      io.Writer
	close   func() error
	lanes   []lane
	dropped atomic.Uint64
}

// lane holds one worker's lines. The busy flag is taken by the worker for an
// append and by the flusher for a swap of two slice headers; a worker that finds
// it taken puts the line into spare, which is its own.
type lane struct {
	busy  atomic.Bool
	lines batch
	spare batch
	_     [64]byte
}

// batch is lines and when each ended: readers expect the order of events, which
// happen on several workers.
type batch struct {
	text []byte
	at   []mark
}

// mark is where a line ends in its batch's text, and its time.
type mark struct {
	end  int
	time int64
}

func (b *batch) add(now int64, line []byte) {
	b.text = append(b.text, line...)
	b.at = append(b.at, mark{len(b.text), now})
}

func (b *batch) addAll(o *batch) {
	base := len(b.text)
	b.text = append(b.text, o.text...)
	for _, m := range o.at {
		b.at = append(b.at, mark{base + m.end, m.time})
	}
}

func (b *batch) reset() { b.text, b.at = b.text[:0], b.at[:0] }

// Open gives the File of a path, opened for appending.
func (f *Files) Open(path string) (*File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if have := f.files[path]; have != nil {
		return have, nil
	}
	file := &File{path: path, lanes: make([]lane, f.workers), to: f.out[path]}
	if file.to == nil {
		o, err := openLog(path)
		if err != nil {
			return nil, err
		}
		file.to, file.close = o, o.Close
	}
	f.files[path] = file
	return file, nil
}

// Write appends one line to the lane of a worker; now (monotonic ns, the same
// clock on all workers) says when it happened. It never blocks.
func (f *File) Write(worker int, now int64, line []byte) {
	l := &f.lanes[worker]
	if !l.busy.CompareAndSwap(false, true) {
		if len(l.spare.text) < laneLimit {
			l.spare.add(now, line)
		} else {
			f.dropped.Add(1)
		}
		return
	}
	if len(l.spare.text) > 0 {
		l.lines.addAll(&l.spare)
		l.spare.reset()
	}
	if len(l.lines.text) < laneLimit {
		l.lines.add(now, line)
	} else {
		f.dropped.Add(1)
	}
	l.busy.Store(false)
}

// Dropped is the number of lines that were lost because the file couldn't keep
// up.
func (f *File) Dropped() uint64 { return f.dropped.Load() }

// flush takes what each worker has and writes it, merged by time.
func (f *File) flush(taken []batch, buf []byte) []byte {
	for i := range f.lanes {
		l := &f.lanes[i]
		taken[i].reset()
		if !l.busy.CompareAndSwap(false, true) {
			continue // next time
		}
		taken[i], l.lines = l.lines, taken[i]
		l.busy.Store(false)
	}
	buf = mergeByTime(buf[:0], taken)
	if len(buf) > 0 {
		// A full disk loses lines; the traffic goes on.
		if _, err := f.to.Write(buf); err != nil {
			f.dropped.Add(1)
		}
	}
	return buf
}

func mergeByTime(dst []byte, from []batch) []byte {
	next := make([]int, len(from))
	for {
		first := -1
		for i := range from {
			if next[i] < len(from[i].at) && (first < 0 || from[i].at[next[i]].time < from[first].at[next[first]].time) {
				first = i
			}
		}
		if first < 0 {
			return dst
		}
		b, n := &from[first], next[first]
		begin := 0
		if n > 0 {
			begin = b.at[n-1].end
		}
		dst = append(dst, b.text[begin:b.at[n].end]...)
		next[first]++
	}
}

// Flush writes out what is waiting.
func (f *Files) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.files {
		f.buf = file.flush(f.taken, f.buf)
	}
}

// Reopen opens every file anew by its name, after something else moved it away. A
// file that can't be opened goes on where it is; the first error says which.
func (f *Files) Reopen() (first error) {
	f.Flush()
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, file := range f.files {
		if file.close == nil {
			continue // not ours to open
		}
		o, err := openLog(path)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		if err := file.close(); err != nil && first == nil {
			first = fmt.Errorf("closing access log %s: %w", path, err)
		}
		file.to, file.close = o, o.Close
	}
	return first
}

func openLog(path string) (*os.File, error) {
	o, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening access log %s: %w", path, err)
	}
	return o, nil
}

// Run writes lines out until ctx ends, then once more, and closes the files.
func (f *Files) Run(ctx context.Context) error {
	t := time.NewTicker(f.interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f.Flush()
		case <-ctx.Done():
			f.Flush()
			return f.closeAll()
		}
	}
}

func (f *Files) closeAll() (first error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, file := range f.files {
		if file.close != nil {
			if err := file.close(); err != nil && first == nil {
				first = fmt.Errorf("closing access log %s: %w", path, err)
			}
		}
		delete(f.files, path)
	}
	return first
}
