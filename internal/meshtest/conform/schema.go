package conform

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// authored is bytes as a case writes them: text, {repeat, times}, {file} of the
// case's folder, or a list of these.
type authored struct{ parts []bytesPart }

type bytesPart struct {
	data []byte
	file string
}

func (a *authored) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.AliasNode:
		return a.UnmarshalYAML(n.Alias)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			var one authored
			if err := one.UnmarshalYAML(c); err != nil {
				return err
			}
			a.parts = append(a.parts, one.parts...)
		}
		return nil
	case yaml.MappingNode:
		var made struct {
			File   string   `yaml:"file"`
			Repeat authored `yaml:"repeat"`
			Times  int      `yaml:"times"`
		}
		if err := decodeStrict(n, &made); err != nil {
			return err
		}
		if made.File != "" {
			a.parts = []bytesPart{{file: made.File}}
			return nil
		}
		a.parts = []bytesPart{{data: bytes.Repeat(made.Repeat.bytes(), made.Times)}}
		return nil
	}
	a.parts = []bytesPart{{data: rawBytes(authoredText(n))}}
	return nil
}

// authoredText is a scalar as text: a plain 1 is "1", a plain true "true".
func authoredText(n *yaml.Node) string {
	switch v := scalarOf(n).(type) {
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	}
	return n.Value
}

// bytes is what stands in the case itself, without files.
func (a *authored) bytes() []byte {
	if a == nil {
		return nil
	}
	var out []byte
	for _, p := range a.parts {
		out = append(out, p.data...)
	}
	return out
}

// in is the bytes, with files read from the folder.
func (a *authored) in(folder string) ([]byte, error) {
	if a == nil {
		return nil, nil
	}
	var out []byte
	for _, p := range a.parts {
		out = append(out, p.data...)
		if p.file == "" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, p.file))
		if err != nil {
			return nil, err
		}
		out = append(out, data...)
	}
	return out, nil
}

// fieldList is headers or trailers, a map or a list of pairs, in authored order.
type fieldList []pair

func (l *fieldList) UnmarshalYAML(n *yaml.Node) error {
	add := func(k, v *yaml.Node) error {
		var value authored
		if err := value.UnmarshalYAML(v); err != nil {
			return err
		}
		s := v.Value
		if v.Kind != yaml.ScalarNode || v.Style == 0 {
			s = latin1(value.bytes())
		}
		*l = append(*l, pair{k.Value, s})
		return nil
	}
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := add(n.Content[i], n.Content[i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range n.Content {
		if c.Kind != yaml.SequenceNode || len(c.Content) != 2 {
			return fmt.Errorf("line %d: a header is [name, value]", c.Line)
		}
		if err := add(c.Content[0], c.Content[1]); err != nil {
			return err
		}
	}
	return nil
}

// settingList is HTTP/2 settings in their order on the wire.
type settingList []setting

type setting struct {
	id    uint16
	value uint32
}

func (l *settingList) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		id, ok := settingIDs[n.Content[i].Value]
		if !ok {
			number, err := strconv.ParseUint(n.Content[i].Value, 0, 16)
			if err != nil {
				return fmt.Errorf("line %d: unknown setting %s", n.Line, n.Content[i].Value)
			}
			id = uint16(number)
		}
		value, err := strconv.ParseUint(n.Content[i+1].Value, 0, 32)
		if err != nil {
			return fmt.Errorf("line %d: setting %s: %w", n.Line, n.Content[i].Value, err)
		}
		*l = append(*l, setting{id, uint32(value)})
	}
	return nil
}

// frameFlags is a list of names or a number.
type frameFlags byte

func (f *frameFlags) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		number, err := strconv.ParseUint(n.Value, 0, 8)
		*f = frameFlags(number)
		return err
	}
	for _, c := range n.Content {
		bit, ok := flagBits[c.Value]
		if !ok {
			return fmt.Errorf("line %d: unknown flag %s", c.Line, c.Value)
		}
		*f += frameFlags(bit)
	}
	return nil
}

// point is where a scripted upstream ends a connection: before, headers, body,
// after ("true" means after), or empty.
type point string

func (p *point) UnmarshalYAML(n *yaml.Node) error {
	*p = point(n.Value)
	if n.Value == "true" {
		*p = "after"
	}
	return nil
}

// interimList is 1xx answers: a status, or {status, headers}.
type interimList []interim

type interim struct {
	Status  int       `yaml:"status"`
	Headers fieldList `yaml:"headers"`
}

func (l *interimList) UnmarshalYAML(n *yaml.Node) error {
	for _, c := range n.Content {
		var i interim
		if c.Kind == yaml.ScalarNode {
			i.Status, _ = strconv.Atoi(c.Value)
		} else if err := decodeStrict(c, &i); err != nil {
			return err
		}
		*l = append(*l, i)
	}
	return nil
}

// script is the answers of an upstream: a list, one answer, or "echo".
type script struct {
	echo    bool
	replies []reply
}

func (s *script) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Value != "echo" {
			return fmt.Errorf("line %d: respond: %s", n.Line, n.Value)
		}
		s.echo = true
		return nil
	case yaml.MappingNode:
		s.replies = make([]reply, 1)
		return decodeStrict(n, &s.replies[0])
	}
	return decodeStrict(n, &s.replies)
}

// nameList is true (the default name), a name or names.
type nameList []string

func (l *nameList) UnmarshalYAML(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.SequenceNode:
		return n.Decode((*[]string)(l))
	case n.Value == "true":
		*l = nameList{"access.log"}
	case n.Value != "false":
		*l = nameList{n.Value}
	}
	return nil
}

// pushList is what a push sets, by kind, in authored order.
type pushList []kindPush

type kindPush struct {
	kind   string
	bodies []any
}

func (l *pushList) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		bodies, ok := valueOf(n.Content[i+1]).([]any)
		if _, known := resourceKinds[n.Content[i].Value]; !known || !ok {
			return fmt.Errorf("line %d: push: unknown kind %s, or no list", n.Line, n.Content[i].Value)
		}
		*l = append(*l, kindPush{n.Content[i].Value, bodies})
	}
	return nil
}

// codeNumber is an HTTP/2 error code by name or number.
func codeNumber(s string) uint32 {
	for i, name := range errorCodes {
		if name == s {
			return uint32(i)
		}
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(s), 0, 32)
	return uint32(n)
}
