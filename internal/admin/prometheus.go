package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/telemetry"
)

func (a *Admin) prometheus(w http.ResponseWriter, r *http.Request) {
	if err := WritePrometheus(r.Context(), w, a.Metrics, query(r)); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
	}
}

// WritePrometheus writes the metrics that q asks for in Prometheus' text format
// the way Envoy does: counters, gauges and histograms, each by name, without HELP.
// The error says what is wrong with q, before anything is written.
func WritePrometheus(ctx context.Context, w io.Writer, r *telemetry.Registry, q url.Values) error {
	s, err := newSelection(q)
	if err != nil {
		return err
	}
	list := slices.DeleteFunc(r.Gather(ctx), func(m telemetry.Metric) bool { return m.Prom == "" || !s.has(&m) })
	slices.SortStableFunc(list, func(a, b telemetry.Metric) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Prom, b.Prom))
	})
	summaries := q.Get("histogram_buckets") == "summary"
	var b []byte
	for i := range list {
		m := &list[i]
		if i == 0 || list[i-1].Prom != m.Prom || list[i-1].Kind != m.Kind {
			b = fmt.Appendf(b, "# TYPE %s %s\n", m.Prom, kindName(m.Kind, summaries))
		}
		switch {
		case m.Kind != telemetry.Histogram:
			b = appendSample(b, m, "", "", strconv.FormatUint(m.Value, 10))
		case summaries:
			b = appendTotals(b, m)
		default:
			b = appendTotals(appendBuckets(b, m), m)
		}
	}
	_, _ = w.Write(b)
	return nil
}

func kindName(k telemetry.Kind, summaries bool) string {
	if k == telemetry.Histogram && summaries {
		return "summary"
	}
	return [...]string{"counter", "gauge", "histogram"}[k]
}

func appendBuckets(b []byte, m *telemetry.Metric) []byte {
	for i, bound := range telemetry.Bounds() {
		if i < len(m.Buckets) {
			b = appendSample(b, m, "_bucket", strconv.FormatFloat(bound, 'g', -1, 64), strconv.FormatUint(m.Buckets[i], 10))
		}
	}
	return appendSample(b, m, "_bucket", "+Inf", strconv.FormatUint(m.Value, 10))
}

func appendTotals(b []byte, m *telemetry.Metric) []byte {
	b = appendSample(b, m, "_sum", "", strconv.FormatFloat(m.Sum, 'g', -1, 64))
	return appendSample(b, m, "_count", "", strconv.FormatUint(m.Value, 10))
}

// appendSample appends one line; le is a bucket's bound, "" for none.
func appendSample(b []byte, m *telemetry.Metric, suffix, le, value string) []byte {
	b = append(append(append(b, m.Prom...), suffix...), '{')
	for i, l := range m.Labels {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, l.Name...), '=', '"'), labelValue(l.Value)...)
		b = append(b, '"')
	}
	if le != "" {
		if len(m.Labels) > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `le="`...), le...), '"')
	}
	return append(append(append(b, "} "...), value...), '\n')
}

// labelValue escapes what the format needs escaped.
func labelValue(s string) string {
	if !strings.ContainsAny(s, "\\\"\n") {
		return s
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
}
