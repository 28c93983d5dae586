package program

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/refusal"
)

// shim is what npm writes today.
func shim(target string) string {
	return strings.ReplaceAll(`@ECHO off
GOTO start
:find_dp0
SET dp0=%~dp0
EXIT /b
:start
SETLOCAL
CALL :find_dp0

IF EXIST "%dp0%\node.exe" (
  SET "_prog=%dp0%\node.exe"
) ELSE (
  SET "_prog=node"
  SET PATHEXT=%PATHEXT:;.JS;=;%
)

endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & "%_prog%"  "%dp0%\`+target+`" %*
`, "\n", "\r\n")
}

const (
	codexScript = `node_modules\@openai\codex\bin\codex.js`
	// oldShim is what npm wrote before, and pnpm does.
	oldShim = `@IF EXIST "%~dp0\node.exe" (` + "\r\n" + `  "%~dp0\node.exe"  "%~dp0\node_modules\a\cli.js" %*` + "\r\n) ELSE (\r\n  node  \"%~dp0\\node_modules\\a\\cli.js\" %*\r\n)"
)

func TestFindWindows(t *testing.T) {
	dirs := []string{`C:\npm`, `C:\Program Files\nodejs\`, "D:/bin"}
	const node = `C:\Program Files\nodejs\node.exe`
	for what, c := range map[string]struct {
		files map[string]string
		want  command
		err   *refusal.Kind
	}{
		"nothing":             {nil, command{}, ErrNotFound},
		"a program":           {map[string]string{`D:\bin\codex.exe`: ""}, command{path: `D:\bin\codex.exe`}, nil},
		"a program beside it": {map[string]string{`C:\npm\codex.exe`: "", `C:\npm\codex.cmd`: shim(codexScript)}, command{path: `C:\npm\codex.exe`}, nil},
		"a script, node elsewhere": {
			map[string]string{`C:\npm\codex.cmd`: shim(codexScript), `C:\npm\` + codexScript: "", node: ""},
			command{node, []string{`C:\npm\` + codexScript}}, nil,
		},
		"a script, node beside it": {
			map[string]string{`C:\npm\codex.cmd`: shim(codexScript), `C:\npm\` + codexScript: "", node: "", `C:\npm\node.exe`: ""},
			command{`C:\npm\node.exe`, []string{`C:\npm\` + codexScript}}, nil,
		},
		"a script above": {
			map[string]string{`C:\npm\codex.cmd`: shim(`..\@openai\codex\bin\codex.js`), `C:\@openai\codex\bin\codex.js`: "", node: ""},
			command{node, []string{`C:\@openai\codex\bin\codex.js`}}, nil,
		},
		"a native program behind it": {
			map[string]string{`C:\npm\codex.cmd`: strings.Replace(shim(`node_modules\a\bin\a.exe`), `"%_prog%"  `, "", 1), `C:\npm\node_modules\a\bin\a.exe`: ""},
			command{path: `C:\npm\node_modules\a\bin\a.exe`}, nil,
		},
		"an old shim": {
			map[string]string{`C:\npm\codex.cmd`: oldShim, `C:\npm\node_modules\a\cli.js`: "", node: ""},
			command{node, []string{`C:\npm\node_modules\a\cli.js`}}, nil,
		},
		"no script behind it": {map[string]string{`C:\npm\codex.cmd`: shim(codexScript), node: ""}, command{}, ErrShim},
		"no node":             {map[string]string{`C:\npm\codex.cmd`: shim(codexScript), `C:\npm\` + codexScript: ""}, command{}, ErrShim},
		"another batch file":  {map[string]string{`C:\npm\codex.cmd`: "@echo off\r\nstart codex %*"}, command{}, ErrShim},
		"a shim comes first":  {map[string]string{`C:\npm\codex.cmd`: "", `D:\bin\codex.exe`: ""}, command{}, ErrShim},
		"a batch file behind": {map[string]string{`C:\npm\codex.cmd`: shim(`node_modules\a\a.cmd`), `C:\npm\node_modules\a\a.cmd`: ""}, command{}, ErrShim},
		"a bat is no program": {map[string]string{`C:\npm\codex.bat`: "", `C:\npm\codex`: "", `C:\npm\codex.ps1`: ""}, command{}, ErrNotFound},
	} {
		read := func(path string) ([]byte, bool) { text, ok := c.files[path]; return []byte(text), ok }
		got, err := findWindows("codex", dirs, read)
		if c.err == nil && err != nil || c.err != nil && !errors.Is(err, c.err) || got.path != c.want.path || !slices.Equal(got.args, c.want.args) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestShimTarget(t *testing.T) {
	for text, want := range map[string]string{
		shim(codexScript): codexScript, oldShim: `node_modules\a\cli.js`, "\"%dp0%\\a.JS\" %*": "a.JS", "\"%~dp0a.mjs\" %*": "a.mjs",
		"": "", shim(codexScript) + shim(`b.js`): "", shim(`C:\a.js`): "", shim(`\\host\a.js`): "", shim(`a.ps1`): "", shim(`a.js`)[:60]: "",
		"\"%dp0%\\a.js\" %* & evil": "", "\"%dp0%\\%x%.js\" %*": "", "\"%x%\\a.js\" %*": "", "\"%dp0%\\a\".js\" %*": "", "\"%dp0%\\a*.js\" %*": "",
	} {
		got, ok := shimTarget(text)
		if got != want && ok || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}
