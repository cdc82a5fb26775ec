// Lockd serves lockd's locks, sessions and keys over Consul's HTTP API, uses such a server from a
// script, and looks after the files of databases.
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
// Those of lockd lock are that of the command it runs, and
//
//	123    the lock was lost, and CMD was ended
//	124    the lock was not to be had, by --try or --timeout
//	125    something else went wrong, the command line too
//	126    CMD could not be started
//	127    there is no CMD
//	128+N  signal N ended CMD, or the wait for the lock
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

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
	if _, ok := err.(cli.ExitCoder); ok { // there is no such command to help with
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
	_ = root.Walk(func(cmd *cli.Command) error { // which returns no error, as this one does not
		cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
			if err = usage(cmd, "%w", explained(cmd, err)); cmd.Name == "lock" {
				return inLock(err)
			}
			return err
		}
		return nil
	})
	return root
}

// wrongValue is how the parser tells of a flag's value that is none.
var wrongValue = regexp.MustCompile(`^invalid value (".*") for flag -([^ :]+): `)

// explained puts what a flag takes in place of what the parser of its value says, which is for
// programmers.
func explained(cmd *cli.Command, err error) error {
	match := wrongValue.FindStringSubmatch(err.Error())
	if match == nil {
		return err
	}
	name := "--" + match[2]
	if len(match[2]) == 1 {
		name = "-" + match[2]
	}
	for _, f := range cmd.Flags {
		if !slices.Contains(f.Names(), match[2]) {
			continue
		}
		switch f.(type) {
		case *cli.Uint64Flag:
			return fmt.Errorf("%s %s is not a whole number from 0 to %d", name, match[1],
				uint64(math.MaxUint64))
		case *cli.IntFlag:
			return fmt.Errorf("%s %s is not a whole number", name, match[1])
		case *cli.DurationFlag:
			return fmt.Errorf("%s %s is not a time with its unit, such as 500ms, 30s or 1m30s",
				name, match[1])
		case *cli.BoolFlag:
			return fmt.Errorf("%s %s is neither true nor false", name, match[1])
		}
	}
	return err
}

// noCommand is what the root does when the first word is no subcommand.
func noCommand(_ context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usage(cmd, "there is no command %q", cmd.Args().First())
	}
	return usage(cmd, "no command is given")
}

// operands returns the arguments of a command, of which there have to be at least and at most so
// many.
func operands(cmd *cli.Command, least, most int) ([]string, error) {
	args := cmd.Args().Slice()
	name := strings.Join(cmd.Path()[1:], " ")
	switch {
	case len(args) < least:
		return nil, usage(cmd, "%s: an argument is missing, of: %s", name, cmd.ArgsUsage)
	case len(args) > most && most == 0:
		return nil, usage(cmd, "%s: %q is one argument too many: it takes none but options", name,
			args[0])
	case len(args) > most:
		return nil, usage(cmd, "%s: %q is one argument too many, after: %s", name, args[most],
			cmd.ArgsUsage)
	}
	return args, nil
}

// version returns the version of the module that the program was built of.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
