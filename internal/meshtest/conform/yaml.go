package conform

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Scalars follow the core rules of YAML 1.2: yes, no, on, off and dates are text.
var (
	coreBool  = regexp.MustCompile(`^(?:true|false|True|False)$`)
	coreNull  = regexp.MustCompile(`^(?:~|null|)$`)
	coreInt   = regexp.MustCompile(`^(?:[-+]?[0-9]+|0x[0-9a-fA-F]+)$`)
	coreFloat = regexp.MustCompile(`^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$`)

	placeholder = regexp.MustCompile(`\$\{(\w+)\}`)
)

// parseYAML reads one document; nil for an empty one.
func parseYAML(data []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

func readYAML(file string) (*yaml.Node, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	n, err := parseYAML(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return n, nil
}

// valueOf is a node as outcome values.
func valueOf(n *yaml.Node) any {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return valueOf(n.Alias)
	case yaml.MappingNode:
		out := object{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			out[n.Content[i].Value] = valueOf(n.Content[i+1])
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, c := range n.Content {
			out[i] = valueOf(c)
		}
		return out
	}
	return scalarOf(n)
}

func scalarOf(n *yaml.Node) any {
	s := n.Value
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return s
	}
	switch {
	case coreBool.MatchString(s):
		return strings.EqualFold(s, "true")
	case coreNull.MatchString(s):
		return nil
	case coreInt.MatchString(s):
		base, digits := 10, s
		if hex, ok := strings.CutPrefix(s, "0x"); ok {
			base, digits = 16, hex
		}
		if i, err := strconv.ParseInt(digits, base, 0); err == nil {
			return int(i)
		}
	}
	if coreFloat.MatchString(s) {
		if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) {
			return f
		}
	}
	return s
}

// placedText replaces each ${name} by its value.
func placedText(s string, values map[string]string) (string, error) {
	var err error
	out := placeholder.ReplaceAllStringFunc(s, func(m string) string {
		v, ok := values[m[2:len(m)-1]]
		if !ok {
			err = fmt.Errorf("unknown placeholder %s", m)
		}
		return v
	})
	return out, err
}

// placed is a copy of a tree with the placeholders of every scalar replaced.
func placed(n *yaml.Node, values map[string]string) (*yaml.Node, error) {
	if n == nil {
		return nil, nil
	}
	if n.Kind == yaml.AliasNode {
		return placed(n.Alias, values)
	}
	out := *n
	var err error
	if n.Kind == yaml.ScalarNode {
		out.Value, err = placedText(n.Value, values)
		return &out, err
	}
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		if out.Content[i], err = placed(c, values); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// decodeStrict decodes a node; a key that the target does not know is an error:
// a misspelt word would otherwise be played as if it meant nothing.
func decodeStrict(n *yaml.Node, into any) error {
	if n == nil {
		return nil
	}
	if err := knownKeys(n, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	return n.Decode(into)
}

func knownKeys(n *yaml.Node, t reflect.Type) error {
	if t == reflect.TypeFor[yaml.Node]() || reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return nil // looks by itself
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return knownKeys(n, t.Elem())
	case n.Kind == yaml.AliasNode:
		return knownKeys(n.Alias, t)
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for _, c := range n.Content {
			if err := knownKeys(c, t.Elem()); err != nil {
				return err
			}
		}
	case n.Kind == yaml.MappingNode && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, field := n.Content[i], reflect.Type(nil)
			if t.Kind() == reflect.Map {
				field = t.Elem()
			} else if field = fieldType(t, key.Value); field == nil {
				return fmt.Errorf("line %d: unknown %q, known are %s", key.Line, key.Value, strings.Join(fieldNames(t), " "))
			}
			if err := knownKeys(n.Content[i+1], field); err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldType is the type of the field of t that a YAML key names, nil without one.
func fieldType(t reflect.Type, key string) reflect.Type {
	for i := range t.NumField() {
		name, opts, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if opts == "inline" {
			if inner := fieldType(t.Field(i).Type, key); inner != nil {
				return inner
			}
		} else if name == key {
			return t.Field(i).Type
		}
	}
	return nil
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, opts, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if opts == "inline" {
			names = append(names, fieldNames(t.Field(i).Type)...)
		} else if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// eachScalar calls f with every key and value below n.
func eachScalar(n *yaml.Node, f func(string)) {
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode {
		f(n.Value)
	}
	for _, c := range n.Content {
		eachScalar(c, f)
	}
}
