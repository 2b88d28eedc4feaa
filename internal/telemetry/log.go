package telemetry

import (
	"strconv"

	"sluice/internal/config"
)

// Log is a compiled list of access loggers, immutable and shared by workers.
type Log struct{ loggers []logger }

type logger struct {
	filter *config.LogFilter
	text   *config.Format
	json   *config.JSONFormat
	file   *File
	otel   *config.OTelLog // nil: not that
	als    *config.GRPCLog // nil: not that
	send   Send
}

// Send hands an encoded record of a streamed log to its worker's exporter, which
// copies it.
type Send func(worker int, record []byte)

// defaultFormat is the line of a file log without a format: Envoy's default.
func defaultFormat() *config.Format {
	op := func(op, arg string) config.FormatItem { return config.FormatItem{Op: op, Arg: arg} }
	lit := func(s string) config.FormatItem { return config.FormatItem{Text: s} }
	return &config.Format{Items: []config.FormatItem{lit("["), op("START_TIME", ""), lit(`] "`), op("REQ", ":method"), lit(" "),
		{Op: "REQ", Arg: "x-envoy-original-path", Alt: ":path"}, lit(" "), op("PROTOCOL", ""), lit(`" `), op("RESPONSE_CODE", ""), lit(" "),
		op("RESPONSE_FLAGS", ""), lit(" "), op("BYTES_RECEIVED", ""), lit(" "), op("BYTES_SENT", ""), lit(" "), op("DURATION", ""), lit(" "),
		op("RESP", "x-envoy-upstream-service-time"), lit(` "`), op("REQ", "x-forwarded-for"), lit(`" "`), op("REQ", "user-agent"), lit(`" "`),
		op("REQ", "x-request-id"), lit(`" "`), op("REQ", ":authority"), lit(`" "`), op("UPSTREAM_HOST", ""), lit("\"\n")}}
}

// Compile prepares a list of loggers. A file that can't be opened is an error
// and its logger is left out; the others still work.
func (f *Files) Compile(list []*config.AccessLog) (*Log, error) {
	var first error
	l := &Log{}
	for _, a := range list {
		c, err := f.logger(a)
		if err != nil && first == nil {
			first = err
		}
		if c != nil {
			l.loggers = append(l.loggers, *c)
		}
	}
	if len(l.loggers) == 0 {
		return nil, first
	}
	return l, first
}

// logger prepares one logger.
func (f *Files) logger(a *config.AccessLog) (*logger, error) {
	c := &logger{filter: a.Filter}
	switch sink := a.Sink.(type) {
	case *config.FileLog:
		var err error
		if c.file, err = f.Open(sink.Path); err != nil {
			return nil, err
		}
		if c.text, c.json = sink.Text, sink.JSON; c.text == nil && c.json == nil {
			c.text = defaultFormat()
		}
	case *config.OTelLog:
		c.otel, c.send = sink, f.Stream(sink)
	case *config.GRPCLog:
		c.als, c.send = sink, f.Stream(sink)
	}
	return c, nil
}

// Writer writes access logs for one worker.
type Writer struct {
	Worker  int
	Format  *Formatter
	line    []byte
	scratch []byte // of expressions
	tags    spanTags
}

// Emit writes r to every logger of l that wants it; a nil l is none.
func (w *Writer) Emit(l *Log, r *Record) {
	if l == nil {
		return
	}
	for i := range l.loggers {
		g := &l.loggers[i]
		if g.filter != nil && !w.Passes(g.filter, r) {
			continue
		}
		w.line = w.write(w.line[:0], g, r)
	}
}

// write gives r to g by way of line, which it returns with its memory.
func (w *Writer) write(line []byte, g *logger, r *Record) []byte {
	switch {
	case g.otel != nil:
		line = w.Format.OTel(line, g.otel, r)
		g.send(w.Worker, line)
		return line
	case g.als != nil:
		line = w.Format.ALS(line, g.als, r)
		g.send(w.Worker, line)
		return line
	case g.json != nil:
		line = append(w.Format.JSON(line, g.json, r), '\n')
	default:
		line = w.Format.Text(line, g.text, r)
	}
	g.file.Write(w.Worker, r.End, line)
	return line
}

// Passes reports whether a filter lets r through.
func (w *Writer) Passes(f *config.LogFilter, r *Record) bool {
	switch f.Kind {
	case config.LogAnd:
		for i := range f.Sub {
			if !w.Passes(&f.Sub[i], r) {
				return false
			}
		}
		return true
	case config.LogOr:
		for i := range f.Sub {
			if w.Passes(&f.Sub[i], r) {
				return true
			}
		}
		return false
	case config.LogStatus:
		return compare(f.Op, uint64(r.Code), f.Number)
	case config.LogDuration:
		return compare(f.Op, uint64(r.End-r.Start)/1e6, f.Number)
	case config.LogNotHealthCheck:
		return !r.HealthCheck
	case config.LogTraceable:
		return r.Sampled && !r.HealthCheck
	case config.LogRuntime:
		return r.random() < uint64(f.Percent.PerMillion)
	case config.LogHeader:
		return f.Header == nil || r.headerMatches(f.Header)
	case config.LogResponseFlag:
		return passesFlags(f.Flags, &r.Flags)
	case config.LogGRPCStatus:
		return passesGRPC(f, r)
	case config.LogMetadata:
		return passesMetadata(f, r)
	case config.LogType:
		return contains(f.Types, r.LogType) != f.Exclude
	case config.LogCEL:
		return w.Holds(f.CEL, r)
	}
	return true
}

func compare(op config.Comparison, v, limit uint64) bool {
	switch op {
	case config.CompareGE:
		return v >= limit
	case config.CompareLE:
		return v <= limit
	case config.CompareNE:
		return v != limit
	}
	return v == limit
}

// random is the request's own number in a million, so that one request is
// logged by all loggers of equal share or by none.
func (r *Record) random() uint64 {
	var n uint64
	for _, c := range r.StreamID[8:] {
		n = n<<8 | uint64(c)
	}
	return (n ^ n>>29) % 1_000_000
}

func passesFlags(want []string, have *Flags) bool {
	if len(want) == 0 {
		return !have.Empty()
	}
	for _, f := range have.list[:have.n] {
		if contains(want, f.String()) {
			return true
		}
	}
	return false
}

func passesGRPC(f *config.LogFilter, r *Record) bool {
	n, ok := r.GRPCStatus()
	if !ok {
		return false
	}
	hit := false
	for _, c := range f.Codes {
		hit = hit || c == n
	}
	return hit != f.Exclude
}

func passesMetadata(f *config.LogFilter, r *Record) bool {
	m := f.Metadata
	if m == nil {
		return true
	}
	v, ok := r.Dynamic.Lookup(m.Namespace, m.Path...)
	if !ok {
		return f.MatchNo
	}
	return m.Value == nil || m.Value.Match(v) != m.Invert
}

// headerMatches is Envoy's header matcher over the request's head.
func (r *Record) headerMatches(m *config.HeaderMatch) bool {
	v, ok := Header(r.Request, m.Name)
	switch {
	case m.Present || m.Absent:
		return ok != m.Absent != m.Invert
	case !ok && !m.TreatMissingAsEmpty:
		return false
	case m.Range != nil:
		n, err := strconv.ParseInt(string(v), 10, 64)
		return (err == nil && n >= m.Range[0] && n < m.Range[1]) != m.Invert
	}
	return (m.String == nil || m.String.Match(string(v))) != m.Invert
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
