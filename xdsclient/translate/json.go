package translate

import (
	"bytes"
	"encoding/json"
	"fmt"

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
	if b, err = wrapUnknown(b); err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: allowUnknown}).Unmarshal(b, m); err != nil {
		return fmt.Errorf("parsing %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
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
