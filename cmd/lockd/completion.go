package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v3"
)

// configureCompletion makes the parser's command for completion scripts a command of this program.
func configureCompletion(completion *cli.Command) {
	completion.Hidden = false
	completion.Usage = "write a script that completes commands and options in a shell"
	completion.ArgsUsage = "SHELL"
	completion.Category = "for a shell"
	completion.Description = "SHELL is bash, zsh, fish or pwsh. In bash and zsh,\n\n" +
		"   source <(lockd completion bash)\n\n" +
		"has it for this shell, and in ~/.bashrc or ~/.zshrc for each. For fish the\n" +
		"script goes to ~/.config/fish/completions/lockd.fish, and for all users of\n" +
		"bash to /usr/share/bash-completion/completions/lockd."
	completion.Action = noCommand
	explainUsage(completion) // newRoot does not have it yet
	for _, shell := range completion.Commands {
		if shell.Name == "bash" {
			shell.Action = func(_ context.Context, cmd *cli.Command) error {
				_, err := io.WriteString(cmd.Root().Writer, bashCompletion)
				return err
			}
		}
	}
}

// bashCompletion replaces the parser's script, which evaluates the line as it is typed: a press of
// the tab key would run a command in $( ), or do a redirection, in that line.
const bashCompletion = `# Completion of lockd for bash.
_lockd() {
	local current=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:0:COMP_CWORD}") line
	COMPREPLY=()
	if [[ " ${words[*]} " == *" -- "* ]]; then # what follows is another command's
		[[ ${words[1]} == lock && ${words[COMP_CWORD - 1]} == -- && $current ]] || return
		while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -c -- "$current")
		return
	fi
	[[ $current == -* ]] && words+=("$current")
	while IFS= read -r line; do
		line=${line%%:*}
		[[ $line == "$current"* ]] && COMPREPLY+=("$line")
	done < <("${words[@]}" --generate-shell-completion 2>/dev/null)
}
complete -o bashdefault -o default -F _lockd lockd
`
