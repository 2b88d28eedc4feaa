package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
)

// adminLog writes the admin port's own access log. Its lane of the files comes
// behind those of the workers.
type adminLog struct {
	mu   sync.Mutex
	log  *telemetry.Log
	out  telemetry.Writer
	base time.Time // of the workers' clocks
}

// newAdminLog compiles the bootstrap's loggers. The error names a file that can't
// be opened.
func newAdminLog(p *plane, list []*config.AccessLog) (*adminLog, error) {
	log, err := p.files.Compile(list)
	if err != nil {
		return nil, fmt.Errorf("opening the admin log: %w", err)
	}
	return &adminLog{log: log, base: p.base, out: telemetry.Writer{Worker: len(p.workers), Format: telemetry.NewFormatter(p.env)}}, nil
}

// around logs what next answers.
func (l *adminLog) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &countingWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(c, r)
		l.write(r, c, began)
	})
}

func (l *adminLog) write(r *http.Request, c *countingWriter, began time.Time) {
	var request, response httpmsg.Head
	request.SetMethod([]byte(r.Method))
	request.SetPath([]byte(r.RequestURI))
	request.SetAuthority([]byte(r.Host))
	copyFields(&request, r.Header)
	response.Status = c.status
	copyFields(&response, c.Header())
	record := telemetry.Record{Conn: &telemetry.Conn{Listener: "admin"}, LogType: "DownstreamEnd", Wall: began, Protocol: telemetry.HTTP11,
		Start: int64(began.Sub(l.base)), End: int64(time.Since(l.base)), Request: &request, Response: &response,
		Code: c.status, Details: "admin_filter_response", BytesIn: uint64(max(r.ContentLength, 0)), BytesOut: c.bytes}
	if a, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		record.Remote, record.Conn.Remote, record.Conn.Direct = a, a, a
	}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(interface{ String() string }); ok {
		record.Conn.Local, _ = netip.ParseAddrPort(a.String())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Emit(l.log, &record)
}

func copyFields(h *httpmsg.Head, fields http.Header) {
	for name, values := range fields {
		for _, v := range values {
			h.AddReceived([]byte(name), []byte(v))
		}
	}
}

// countingWriter notes an answer's status and bytes.
type countingWriter struct {
	http.ResponseWriter
	status int
	bytes  uint64
}

// WriteHeader implements http.ResponseWriter.
func (c *countingWriter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += uint64(n)
	return n, err
}
