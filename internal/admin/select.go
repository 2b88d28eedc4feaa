package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Select keeps of config_dump's sections what the query asks for: the top-level
// fields named by mask or resource, and resources whose name fits.
func (q *DumpQuery) Select(sections []json.RawMessage) ([]json.RawMessage, error) {
	mask := q.Mask
	if q.Resource != "" {
		mask = append(mask, q.Resource)
	}
	if len(mask) == 0 && q.Name == nil {
		return sections, nil
	}
	out := []json.RawMessage{}
	for _, s := range sections {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(s, &fields); err != nil {
			return nil, fmt.Errorf("reading a section: %w", err)
		}
		if len(mask) > 0 && !keepFields(fields, mask) {
			continue
		}
		if q.Name != nil {
			q.keepNames(fields)
		}
		text, err := json.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("writing a section: %w", err)
		}
		out = append(out, text)
	}
	return out, nil
}

// keepFields drops what the mask doesn't name; false means that nothing is left.
func keepFields(fields map[string]json.RawMessage, mask []string) bool {
	found := false
	for name := range fields {
		if name == "@type" {
			continue
		}
		if slices.ContainsFunc(mask, func(m string) bool { top, _, _ := strings.Cut(m, "."); return top == name }) {
			found = true
			continue
		}
		delete(fields, name)
	}
	return found
}

func (q *DumpQuery) keepNames(fields map[string]json.RawMessage) {
	for key, raw := range fields {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			continue
		}
		kept := slices.DeleteFunc(list, func(item json.RawMessage) bool { return !q.Name.MatchString(nameOf(item)) })
		if text, err := json.Marshal(kept); err == nil {
			fields[key] = text
		}
	}
}

// nameOf finds a dumped resource's name: its own, or that of what it wraps.
func nameOf(item json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(item, &fields) != nil {
		return ""
	}
	for _, key := range []string{"name", "cluster_name"} {
		var name string
		if json.Unmarshal(fields[key], &name) == nil && name != "" {
			return name
		}
	}
	for _, key := range []string{"cluster", "route_config", "listener", "endpoint_config", "secret"} {
		if inner, ok := fields[key]; ok {
			if name := nameOf(inner); name != "" {
				return name
			}
		}
	}
	return ""
}
