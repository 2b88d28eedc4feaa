package conform

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// traceID is an identifier of a trace or span.
var traceID = regexp.MustCompile(`\b(?:[0-9a-f]{32}|[0-9a-f]{16})\b`)

// ids are the identifiers in the outcome of a case about traces: numbered as they
// come, so that links between spans show. One that the case itself names stays.
type ids struct {
	authored string // the case's text
	numbers  map[string]int
}

func (t *ids) number(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(object, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) { // not the order of the wire
			out[k] = t.number(v[k])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = t.number(v[i])
		}
		return out
	case string:
		return traceID.ReplaceAllStringFunc(v, t.named)
	}
	return v
}

func (t *ids) named(id string) string {
	if strings.Contains(t.authored, id) {
		return id
	}
	if t.numbers[id] == 0 {
		t.numbers[id] = len(t.numbers) + 1
	}
	return fmt.Sprintf("<id %d of %d>", t.numbers[id], len(id))
}

// without has no identifiers but the case's own: for sorting.
func (t *ids) without(s string) string {
	return traceID.ReplaceAllStringFunc(s, func(id string) string {
		if strings.Contains(t.authored, id) {
			return id
		}
		return "<id>"
	})
}
