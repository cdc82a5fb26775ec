package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Category:  onFile,
		Usage:     "read all of a file, and say whether a program could open it",
		ArgsUsage: "FILE",
		Description: "Nothing is changed, and nothing printed if all is well.\n" +
			"The exit code says what is wrong, if something is: see lockd --help.",
		Action: func(_ context.Context, cmd *cli.Command) error {
			args, err := operands(cmd, 1, 1)
			if err != nil {
				return err
			}
			return lockd.Verify(args[0], nil)
		},
	}
}

// onFile is the category of the commands on the file of a closed database.
const onFile = "on the file of a closed database"
