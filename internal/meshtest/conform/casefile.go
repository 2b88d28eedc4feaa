package conform

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// caseFile is one case as it stands in its file: what depends on ports is kept
// as a tree until they are known.
type caseFile struct {
	Area    string      `yaml:"area"`
	Why     string      `yaml:"why"`
	Start   startSpec   `yaml:"start"`
	Observe observeSpec `yaml:"observe"`
	Ignore  []string    `yaml:"ignore"`
	Mask    [][2]string `yaml:"mask"`
	IDs     bool        `yaml:"ids"` // those of traces are numbered
	LimitS  float64     `yaml:"limit_s"`
	Args    []string    `yaml:"args"`

	NameInFile string    `yaml:"name"`
	Needs      []string  `yaml:"needs"`
	Config     yaml.Node `yaml:"config"`
	Backends   yaml.Node `yaml:"backends"`
	Steps      yaml.Node `yaml:"steps"`
	ADS        yaml.Node `yaml:"ads"`
	Files      yaml.Node `yaml:"files"`
	Expect     yaml.Node `yaml:"expect"`

	name   string // AREA/NAME
	expect object // what Envoy did
}

type startSpec struct {
	Initialized *bool `yaml:"initialized"`
}

type observeSpec struct {
	Upstreams string   `yaml:"upstreams"`
	AccessLog nameList `yaml:"access_log"`
	Stats     []string `yaml:"stats"`
}

type adsSpec struct {
	Mode  string `yaml:"mode"`
	Order bool   `yaml:"order"`
	Up    *bool  `yaml:"up"`
}

// script of a case once its ports are known.
type placedCase struct {
	bootstrap []byte
	files     map[string]string
	backends  map[string]*backendSpec
	ads       *adsSpec
	steps     []step
	args      []string
}

// loadCase reads the case at root/AREA/NAME.yaml. A word it does not know, or a
// missing record, is an error.
func loadCase(root, name string) (*caseFile, error) {
	n, err := readYAML(filepath.Join(root, name+".yaml"))
	if err != nil {
		return nil, err
	}
	c := &caseFile{name: name, LimitS: 15}
	if err := decodeStrict(n, c); err != nil {
		return nil, fmt.Errorf("reading case %s: %w", name, err)
	}
	if c.Area == "" || c.Config.IsZero() || c.Steps.IsZero() || c.Expect.IsZero() {
		return nil, fmt.Errorf("reading case %s: it needs area, config, steps and expect", name)
	}
	c.expect, _ = valueOf(&c.Expect).(object)
	values := map[string]string{"DIR": "/dir"}
	for i, port := range c.portNames() {
		values[port] = strconv.Itoa(10000 + i)
	}
	if _, err := c.place(values); err != nil {
		return nil, fmt.Errorf("reading case %s: %w", name, err)
	}
	return c, nil
}

// caseNames lists the cases below root, of the given areas, sorted.
func caseNames(root string, areas []string) ([]string, error) {
	var names []string
	for _, area := range areas {
		found, err := fs.Glob(dirFS(root), area+"/*.yaml")
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no cases in %s/%s", root, area)
		}
		for _, f := range found {
			names = append(names, strings.TrimSuffix(f, ".yaml"))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (c *caseFile) limit() time.Duration { return seconds(c.LimitS) }

var listenerName = regexp.MustCompile(`\bL\d+\b`)

// portNames is every port the case speaks of: listeners, admin, ADS, backends.
func (c *caseFile) portNames() []string {
	spoken := map[string]bool{"ADMIN": true}
	note := func(s string) {
		for _, name := range listenerName.FindAllString(s, -1) {
			spoken[name] = true
		}
	}
	eachScalar(&c.Config, note)
	eachScalar(&c.Steps, note)
	if !c.ADS.IsZero() {
		spoken["ADS"] = true
	}
	for i := 0; i < len(c.Backends.Content); i += 2 {
		spoken[c.Backends.Content[i].Value] = true
	}
	return slices.Sorted(maps.Keys(spoken))
}

// place replaces the placeholders and decodes what they stand in.
func (c *caseFile) place(values map[string]string) (*placedCase, error) {
	p := &placedCase{files: map[string]string{}}
	var err error
	if p.bootstrap, err = c.bootstrap(values); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	for _, part := range []struct {
		name string
		from yaml.Node
		into any
	}{{"files", c.Files, &p.files}, {"backends", c.Backends, &p.backends}, {"steps", c.Steps, &p.steps}, {"ads", c.ADS, &p.ads}} {
		if part.from.IsZero() {
			continue
		}
		tree, err := placed(&part.from, values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		if err := decodeStrict(tree, part.into); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	for i := range p.steps {
		if err := p.steps[i].check(); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	for _, a := range c.Args {
		if a, err = placedText(a, values); err != nil {
			return nil, fmt.Errorf("args: %w", err)
		}
		p.args = append(p.args, a)
	}
	return p, nil
}

// bootstrap is the configuration as JSON, with node and admin added when absent.
func (c *caseFile) bootstrap(values map[string]string) ([]byte, error) {
	tree, err := placed(&c.Config, values)
	if err != nil {
		return nil, err
	}
	if tree.Kind == yaml.ScalarNode {
		if tree, err = parseYAML([]byte(tree.Value)); err != nil {
			return nil, err
		}
	}
	config, ok := valueOf(tree).(object)
	if !ok {
		return nil, fmt.Errorf("it is no mapping")
	}
	if config["node"] == nil {
		config["node"] = object{"id": "conform", "cluster": "conform"}
	}
	if config["admin"] == nil {
		port, _ := strconv.Atoi(values["ADMIN"])
		config["admin"] = object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}}
	}
	return json.MarshalIndent(config, "", " ")
}

// stepLabel is the authored text of the step that a difference's path names.
func (c *caseFile) stepLabel(path string) string {
	parts := strings.Split(path, ".")
	if len(parts) < 2 || parts[0] != "steps" {
		return ""
	}
	i, err := strconv.Atoi(parts[1])
	if err != nil || i >= len(c.Steps.Content) {
		return ""
	}
	label := dumped(valueOf(c.Steps.Content[i]))
	if len(label) > 100 {
		label = label[:100] + "..."
	}
	return "   <- " + label
}
