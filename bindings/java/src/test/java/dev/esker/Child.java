package dev.esker;

import java.nio.file.Path;
import java.util.List;

/** Writes, says so, and ends without a close: by {@code exit}, {@code busy} in the middle of calls, or when it is killed. */
final class Child {
    private Child() {}

    public static void main(String[] arguments) throws Exception {
        Kvdb db = Temporary.open(Path.of(arguments[0]));
        Kvs kvs = db.kvsOrCreate("a");
        boolean durable = arguments[1].equals("kill");
        for (int n = 0; n < 500; n++) {
            kvs.put(Temporary.b("key" + n), new byte[100], durable);
            if (durable) {
                System.out.println(n);
            }
        }
        if (arguments[1].equals("busy")) {
            for (Runnable load : List.<Runnable>of(() -> kvs.put(Temporary.b("w"), new byte[100]),
                    () -> Temporary.keys(kvs.iterate()), () -> kvs.get(Temporary.b("key1")),
                    () -> db.snapshot().get(kvs, Temporary.b("key2")))) {
                Thread thread = new Thread(() -> {
                    while (true) {
                        load.run();
                    }
                });
                thread.setDaemon(true);
                thread.start();
            }
            Thread.sleep(Integer.parseInt(arguments[2]));
        }
        if (!durable) {
            System.exit(7);
        }
        Thread.sleep(60_000);
    }
}
