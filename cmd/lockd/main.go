// Lockd serves lockd's locks, sessions and keys over Consul's HTTP API, uses such a server from a
// script, and looks after the files of databases.
//
// The server:
//
//	lockd serve                  serve a database, of a file or in memory
//
// On the file of a closed database:
//
//	lockd verify FILE            read all of it, and say whether a program could open it
//	lockd backup FILE [TO]       write a backup of it; of one that is served, by its server
//	lockd recover FILE TO        write a backup of what can be read of a damaged one
//	lockd restore FILE [FROM]    make a new file of a backup
//	lockd compact FILE           rewrite it without the free pages in it
//
// Against a server, lockd or a Consul agent:
//
//	lockd lock KEY -- CMD        run a command while holding a lock, or with -n a slot
//	lockd locks [PREFIX]         list the locks that are held, delayed or waited for, and by whom
//	lockd watch [PREFIX]         write a line for each key, and then when it has changed
//	lockd kv get KEY             and put, delete, list, export, import
//	lockd session list           and info, destroy
//
// lockd completion SHELL writes a script that completes commands and options. Each command explains
// itself with --help.
//
// # Exit codes
//
//	0    it is done
//	1    it is not: the error, on standard error, says why
//	2    the command line is wrong
//	3    there is no such file, key or session
//	4    the file is in use by a process that has it open
//	5    the file, or the backup, is damaged, not lockd's, or of a newer format
//	6    the key does not have the index that the write was to find
//
// The exit codes of lockd lock are those of the command it runs, and
//
//	123    the lock was lost before CMD had ended
//	124    the lock was not to be had, by --try or --timeout
//	125    something else went wrong, the command line too
//	126    CMD could not be started
//	127    there is no CMD
//	128+N  signal N ended CMD, or the wait for the lock
package main

import (
	"context"
	"io"
	"os"

	"github.com/urfave/cli/v3"
)

func main() {
	os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run runs the command line, and returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, complaints io.Writer) int {
	root := newRoot()
	root.Reader, root.Writer, root.ErrWriter = in, out, complaints
	err := root.Run(ctx, args)
	if e, ok := err.(cli.ExitCoder); ok && e.ExitCode() == 3 { // no such command to help with
		err = usage(root, "%w", err)
	}
	if err != nil && err.Error() != "" {
		complain(complaints, "%v", err)
	}
	return exitCode(err)
}

// newRoot returns the command with all its subcommands.
func newRoot() *cli.Command {
	root := &cli.Command{
		Name:  "lockd",
		Usage: "locks, sessions and keys, on one file, by Consul's HTTP API",
		Commands: []*cli.Command{
			serveCommand(),
			lockCommand(),
			locksCommand(),
			watchCommand(),
			kvCommand(),
			sessionCommand(),
			verifyCommand(),
			backupCommand(),
			recoverCommand(),
			restoreCommand(),
			compactCommand(),
		},
		Action:         noCommand,
		Description:    exitCodes,
		Version:        version(),
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // the code is returned

		HideHelpCommand: true, // --help does it; "help" may be a key, or a file

		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: configureCompletion,
	}
	explainUsage(root)
	return root
}

// explainUsage makes the errors of the parser errUsage, in the command and its subcommands. It also
// lets --help stand behind arguments.
func explainUsage(root *cli.Command) {
	_ = root.Walk(func(cmd *cli.Command) error { // which returns no error, as this one does not
		cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
			if err = usage(cmd, "%w", explained(cmd, err)); cmd.Name == "lock" {
				return inLock(err)
			}
			return err
		}
		if len(cmd.Commands) == 0 { // --help behind arguments looks for the first as a command
			cmd.CommandNotFound = func(_ context.Context, cmd *cli.Command, _ string) {
				cli.HelpPrinter(cmd.Root().Writer, cli.CommandHelpTemplate, cmd)
			}
		}
		return nil
	})
}
