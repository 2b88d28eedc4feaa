package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"sluice/internal/telemetry"
)

// query reads the query as Envoy does: only & separates, since names of stats
// have semicolons, and a plus is a plus.
func query(r *http.Request) url.Values {
	q := url.Values{}
	if r.URL.RawQuery == "" {
		return q
	}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if text, err := url.PathUnescape(value); err == nil {
			value = text
		}
		q.Add(name, value)
	}
	return q
}

// selection is which metrics a query asks for.
type selection struct {
	filter   *regexp.Regexp // nil: all
	usedOnly bool
	kind     telemetry.Kind
	kinds    bool // kind counts
}

const badRegex = "Invalid re2 regex"

// newSelection reads a query's filter, usedonly and type. The error is the text
// of a 400.
func newSelection(q url.Values) (s selection, err error) {
	if f := q.Get("filter"); f != "" {
		if s.filter, err = compile(f); err != nil {
			return s, fmt.Errorf("%s: %w", badRegex, err)
		}
	}
	s.usedOnly, s.kinds = q.Has("usedonly"), true
	switch q.Get("type") {
	case "Counters":
		s.kind = telemetry.Counter
	case "Gauges":
		s.kind = telemetry.Gauge
	case "Histograms":
		s.kind = telemetry.Histogram
	case "", "All":
		s.kinds = false
	default:
		err = errors.New("invalid &type= param")
	}
	return s, err
}

func (s *selection) has(m *telemetry.Metric) bool {
	return (s.filter == nil || s.filter.MatchString(m.Name)) && (!s.usedOnly || m.Used) && (!s.kinds || m.Kind == s.kind)
}

// compile is regexp.Compile with errors as RE2 words them.
func compile(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	var bad *syntax.Error
	if !errors.As(err, &bad) {
		return re, err
	}
	why := string(bad.Code)
	switch bad.Code {
	case syntax.ErrMissingBracket:
		why = "missing ]"
	case syntax.ErrMissingParen:
		why = "missing )"
	case syntax.ErrMissingRepeatArgument:
		why = "no argument for repetition operator"
	case syntax.ErrInvalidRepeatOp:
		why = "bad repetition operator"
	case syntax.ErrInvalidRepeatSize:
		why = "invalid repetition size"
	case syntax.ErrInvalidPerlOp:
		why = "invalid perl operator"
	case syntax.ErrTrailingBackslash:
		return nil, errors.New("trailing \\")
	}
	return nil, fmt.Errorf("%s: %s", why, bad.Expr)
}

// stats prints Envoy's text or JSON form.
func (a *Admin) stats(w http.ResponseWriter, r *http.Request) {
	q := query(r)
	format := q.Get("format")
	if format == "prometheus" {
		a.prometheus(w, r)
		return
	}
	s, err := newSelection(q)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	switch format {
	case "", "text", "json", "html", "active-html":
	default:
		refuse(w, http.StatusBadRequest, "usage: /stats?format=(html|active-html|json|prometheus|text)\n\n")
		return
	}
	list := slices.DeleteFunc(a.Metrics.Gather(r.Context()), func(m telemetry.Metric) bool { return m.Name == "" || !s.has(&m) })
	if format == "json" {
		statsJSON(w, list)
		return
	}
	for _, m := range list {
		if m.Kind == telemetry.Histogram {
			fmt.Fprintf(w, "%s: %s\n", m.Name, summary(&m))
		} else {
			fmt.Fprintf(w, "%s: %d\n", m.Name, m.Value)
		}
	}
}

func summary(m *telemetry.Metric) string {
	if m.Value == 0 {
		return "No recorded values"
	}
	return fmt.Sprintf("count %d, sum %g", m.Value, m.Sum)
}

func statsJSON(w http.ResponseWriter, list []telemetry.Metric) {
	type stat struct {
		Name  string `json:"name"`
		Value uint64 `json:"value"`
	}
	out := struct {
		Stats []stat `json:"stats"`
	}{Stats: []stat{}}
	for _, m := range list {
		if m.Kind != telemetry.Histogram {
			out.Stats = append(out.Stats, stat{m.Name, m.Value})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	text, _ := json.Marshal(out) // strings and numbers: can't fail
	_, _ = w.Write(text)
}

// resetCounters puts all counters to zero.
func (a *Admin) resetCounters(w http.ResponseWriter, r *http.Request) {
	a.Metrics.Reset(r.Context())
	_, _ = io.WriteString(w, "OK\n")
}
