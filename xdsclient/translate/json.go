package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"sigs.k8s.io/yaml"
)

// Message parses YAML or JSON into an Envoy message. Unknown fields are errors
// unless allowUnknown; an Any of a type this binary doesn't know becomes a
// TypedStruct of that type, so that whoever meets it can refuse it by name.
func Message(data []byte, m proto.Message, allowUnknown bool) error {
	b, err := yaml.YAMLToJSON(data)
	if err != nil {
		return fmt.Errorf("parsing YAML: %w", err)
	}
	name := m.ProtoReflect().Descriptor().Name()
	if string(b) == "null" {
		return fmt.Errorf("parsing %s: it is empty", name)
	}
	if b, err = wrapUnknown(b); err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: allowUnknown}).Unmarshal(b, m); err != nil {
		return fmt.Errorf("parsing %s: %s", name, explain(b, err))
	}
	return nil
}

// explain puts a field's path in place of protojson's position, which is one in
// JSON that we made and the reader never saw.
func explain(b []byte, err error) string {
	said := regexp.MustCompile(`^proto:[\s\x{a0}]*(?:syntax error )?\(line 1:(\d+)\): (.*)$`).FindStringSubmatch(err.Error())
	if said == nil {
		return err.Error()
	}
	column, _ := strconv.Atoi(said[1])
	before := []rune(string(b))
	at := len(string(before[:min(column-1, len(before))]))
	f := finder{dec: json.NewDecoder(bytes.NewReader(b)), at: int64(at)}
	if path, ok := f.value(""); ok && path != "" {
		return path + ": " + said[2]
	}
	return said[2]
}

// finder looks for the field that an offset in JSON belongs to.
type finder struct {
	dec *json.Decoder
	at  int64
}

// value reads one value; ok is true when the offset is in it.
func (f finder) value(path string) (found string, ok bool) {
	t, err := f.dec.Token()
	if err != nil || f.dec.InputOffset() > f.at {
		return path, true
	}
	open, _ := t.(json.Delim)
	for i := 0; open != 0 && f.dec.More(); i++ {
		inner := fmt.Sprintf("%s[%d]", path, i)
		if open == '{' {
			key, err := f.dec.Token()
			inner = strings.TrimPrefix(fmt.Sprintf("%s.%v", path, key), ".")
			if err != nil || f.dec.InputOffset() > f.at {
				return inner, true
			}
		}
		if found, ok := f.value(inner); ok {
			return found, true
		}
	}
	if open != 0 {
		_, _ = f.dec.Token() // the closing bracket
	}
	return "", false
}

// wrapUnknown rewrites objects with an @type that isn't linked in. It keeps
// numbers as they were written.
func wrapUnknown(b []byte) ([]byte, error) {
	if !bytes.Contains(b, []byte(`"@type"`)) {
		return b, nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("parsing JSON: %w", err)
	}
	out, err := json.Marshal(wrapTree(tree))
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return out, nil
}

func wrapTree(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = wrapTree(v[i])
		}
	case map[string]any:
		url, ok := v["@type"].(string)
		if ok && !linked(url) {
			delete(v, "@type")
			return map[string]any{"@type": urlPrefix + typedStructXDS, "type_url": url, "value": v}
		}
		if ok && (shortURL(url) == typedStructXDS || shortURL(url) == typedStructUDPA) {
			return v // its value isn't JSON of a message yet
		}
		if ok && shortURL(url) == "google.protobuf.Struct" && v["value"] == nil {
			v["value"] = map[string]any{} // Envoy takes an empty one so
		}
		for k := range v {
			v[k] = wrapTree(v[k])
		}
	}
	return v
}

func linked(url string) bool {
	_, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	return err == nil
}
