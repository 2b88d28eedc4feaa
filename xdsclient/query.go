package xdsclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Query is the query string of /config_dump.
type Query struct {
	Resource  string // one repeated field of a section, element by element
	Mask      string // comma list of field paths to keep
	NameRegex string
	Endpoints bool // include_eds
}

func (q *Query) names() (*regexp.Regexp, error) {
	if q.NameRegex == "" {
		return nil, nil
	}
	if _, err := regexp.Compile(q.NameRegex); err != nil {
		return nil, fmt.Errorf("INVALID_ARGUMENT: Error while parsing name_regex from %s: %s", q.NameRegex, regexReason(err))
	}
	return regexp.Compile("^(?:" + q.NameRegex + ")$")
}

// regexReason puts a Go error in RE2's words, where they differ by a prefix.
func regexReason(err error) string {
	text := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	reason, expr, ok := strings.Cut(text, ": `")
	if !ok {
		return text
	}
	return strings.Replace(reason, "missing closing )", "missing )", 1) + ": " + strings.TrimSuffix(expr, "`")
}

// answer picks from the sections and writes them.
func (q *Query) answer(sections []proto.Message) ([]byte, int) {
	if q.Resource != "" {
		var err error
		if sections, err = pick(sections, q.Resource); err != nil {
			return []byte(err.Error()), http.StatusNotFound
		}
	}
	if q.Mask != "" {
		if sections = mask(sections, strings.Split(q.Mask, ",")); len(sections) == 0 {
			return []byte("FieldMask " + q.Mask + " could not be successfully used."), http.StatusBadRequest
		}
	}
	var body struct {
		Configs []json.RawMessage `json:"configs,omitempty"`
	}
	for _, s := range sections {
		b, err := sectionJSON(s)
		if err != nil {
			return []byte(err.Error()), http.StatusInternalServerError
		}
		body.Configs = append(body.Configs, b)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return []byte(err.Error()), http.StatusInternalServerError
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", " "); err != nil {
		return []byte(err.Error()), http.StatusInternalServerError
	}
	out.WriteByte('\n')
	return out.Bytes(), http.StatusOK
}

// pick gives the elements of the one repeated field of that name.
func pick(sections []proto.Message, name string) ([]proto.Message, error) {
	for _, s := range sections {
		m := s.ProtoReflect()
		f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if f == nil {
			continue
		}
		if !f.IsList() || f.Message() == nil {
			return nil, fmt.Errorf("%s is not a repeated field. Use ?mask to get only this field", name)
		}
		l := m.Get(f).List()
		out := make([]proto.Message, 0, l.Len())
		for i := range l.Len() {
			out = append(out, l.Get(i).Message().Interface())
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s not found in config dump", name)
}

// mask keeps the sections that have one of the paths, cut down to these.
func mask(sections []proto.Message, paths []string) []proto.Message {
	var out []proto.Message
	for _, s := range sections {
		var mine []string
		for _, p := range paths {
			if hasPath(s.ProtoReflect().Descriptor(), p) {
				mine = append(mine, p)
			}
		}
		if len(mine) > 0 {
			trim(s.ProtoReflect(), mine)
			out = append(out, s)
		}
	}
	return out
}

// hasPath follows singular messages only, as field masks do.
func hasPath(d protoreflect.MessageDescriptor, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	f := d.Fields().ByName(protoreflect.Name(name))
	switch {
	case f == nil:
		return false
	case !more:
		return true
	case f.Message() == nil || f.IsList() || f.IsMap():
		return false
	}
	return hasPath(f.Message(), rest)
}

// trim clears what no path names.
func trim(m protoreflect.Message, paths []string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		var below []string
		for _, p := range paths {
			name, rest, more := strings.Cut(p, ".")
			if name != string(f.Name()) {
				continue
			}
			if !more {
				return true // the whole field
			}
			below = append(below, rest)
		}
		if below == nil {
			m.Clear(f)
		} else {
			trim(v.Message(), below)
		}
		return true
	})
}
