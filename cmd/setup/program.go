package setup

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tailscale/hujson"
)

// Server is how a program starts the MCP server.
type Server struct {
	Name    string // under which the program knows it
	Command string // a path
	Args    []string
	Env     []Field // of strings
	Hook    string  // the command of the hook, for programs that have one
}

// Home is where a user's programs keep their files.
type Home struct {
	Dir     string
	System  string              // as runtime.GOOS
	Getenv  func(string) string // the variables that move a program's folder
	Project string              // a folder: its own files instead of the user's; "" for none
}

// Names are the programs that are known.
var Names = []string{"claude-code", "codex", "cursor", "vscode"}

// Title is how people call a program.
func Title(program string) string {
	titles := map[string]string{"claude-code": "Claude Code", "codex": "Codex", "cursor": "Cursor", "vscode": "VS Code"}
	return titles[program]
}

// Targets returns the files of a program, and what belongs into them. The formats are by
// the documentation of the programs; the page "waking" names where it was read.
func (h Home) Targets(program string, s Server) []Target {
	args := []any{}
	for _, a := range s.Args {
		args = append(args, a)
	}
	value := Object{{"type", "stdio"}, {"command", s.Command}, {"args", args}, {"env", Object(s.Env)}}
	mcp := func(path string, f Format, under string) Target {
		return Target{path, f, []Entry{{Path: []string{under}, Key: s.Name, Value: value, Ours: isServer}}, h.Project}
	}
	switch program {
	case "claude-code":
		hook := Object{{"type", "command"}, {"command", s.Hook}, {"asyncRewake", true}, {"timeout", hookSeconds}}
		stop := Entry{Path: []string{"hooks", "Stop"}, Group: "hooks", Value: hook, Ours: isHook}
		servers, settings := h.claudeCode()
		return []Target{mcp(servers, JSON, "mcpServers"), {settings, JSON, []Entry{stop}, h.Project}}
	case "codex":
		value = value[1:] // it tells a program from a URL by the key
		return []Target{mcp(h.within("CODEX_HOME", ".codex", "config.toml"), TOML, "mcp_servers")}
	case "cursor":
		return []Target{mcp(h.within("", ".cursor", "mcp.json"), JSON, "mcpServers")}
	default:
		return []Target{mcp(h.vscode(), JSONC, "servers")}
	}
}

// hookSeconds is after what time Claude Code may end the hook, which then waits again at
// the end of the next turn: a week.
const hookSeconds = 7 * 24 * 60 * 60

// within is a file in a program's folder, which a variable may move.
func (h Home) within(variable, folder, file string) string {
	if h.Project != "" {
		return filepath.Join(h.Project, folder, file)
	}
	if dir := h.variable(variable); dir != "" {
		return filepath.Join(dir, file)
	}
	return filepath.Join(h.Dir, folder, file)
}

func (h Home) variable(name string) string {
	if name == "" || !filepath.IsAbs(h.Getenv(name)) {
		return ""
	}
	return h.Getenv(name)
}

// claudeCode returns the file for servers and the one for hooks. In a project, the hook
// goes into the settings that are not shared: it names files of this machine.
func (h Home) claudeCode() (servers, settings string) {
	dir := h.variable("CLAUDE_CONFIG_DIR")
	switch {
	case h.Project != "":
		return filepath.Join(h.Project, ".mcp.json"), filepath.Join(h.Project, ".claude", "settings.local.json")
	case dir != "":
		return filepath.Join(dir, ".claude.json"), filepath.Join(dir, "settings.json")
	}
	return filepath.Join(h.Dir, ".claude.json"), filepath.Join(h.Dir, ".claude", "settings.json")
}

func (h Home) vscode() string {
	if h.Project != "" {
		return filepath.Join(h.Project, ".vscode", "mcp.json")
	}
	dir := filepath.Join(h.Dir, ".config")
	switch h.System {
	case "darwin":
		dir = filepath.Join(h.Dir, "Library", "Application Support")
	case "windows":
		dir = h.variable("APPDATA")
		if dir == "" {
			dir = filepath.Join(h.Dir, "AppData", "Roaming")
		}
	default:
		if other := h.variable("XDG_CONFIG_HOME"); other != "" {
			dir = other
		}
	}
	return filepath.Join(dir, "Code", "User", "mcp.json")
}

// isServer reports whether a value starts relay mcp.
func isServer(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	command, _ := m["command"].(string)
	args, _ := m["args"].([]any)
	return isRelay(command) && len(args) > 0 && args[0] == "mcp"
}

// isRelay reports whether a path names the relay, even on another system.
func isRelay(path string) bool {
	name := path[strings.LastIndexAny(path, `/\`)+1:]
	return name == "relay" || name == "relay.exe"
}

var hookCommand = regexp.MustCompile(`(?:^|[/\\ '"])relay(?:\.exe)?['"]? hook wait(?: |$)`)

// isHook reports whether a value runs relay hook wait.
func isHook(v any) bool {
	m, _ := v.(map[string]any)
	command, _ := m["command"].(string)
	return hookCommand.MatchString(command)
}

// Found is what a file has of ours.
type Found struct {
	Path    string
	Server  map[string]any // command, args, env; may be nil
	Hook    string         // the hook's command, or ""
	Problem error          // why the file cannot be used
}

// Look reads what a program's files have of ours. name is the server's.
func (h Home) Look(program, name string) (all []Found) {
	for _, t := range h.Targets(program, Server{Name: name}) {
		f := Found{Path: t.Path}
		was, err := readConfig(t)
		if err != nil {
			f.Problem = err
		} else if err := look(t, was.text, &f); err != nil {
			f.Problem = fmt.Errorf("%s: %w", t.Path, err)
		}
		all = append(all, f)
	}
	return all
}

func look(t Target, text []byte, f *Found) error {
	e := t.Entries[0]
	if t.Format == TOML {
		d, err := parseTOML(text)
		if err != nil {
			return err
		}
		if v := d.find([]string{e.Path[0], e.Key}); e.Ours(v) {
			f.Server = v.(map[string]any)
		}
		return nil
	}
	return eachOurs(t.Format, text, e, func(_ *jsonDoc, _ *hujson.Value, _ int, v *hujson.Value) []byte {
		m := plain(v).(map[string]any)
		if e.Key != "" {
			f.Server = m
		} else {
			f.Hook, _ = m["command"].(string)
		}
		return nil
	})
}
