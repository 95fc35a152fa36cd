
import holdfast,sys,time,threading,asyncio
m=sys.argv[1]
if m.startswith("a"):
    async def main():
        async with holdfast.arun("ask1",run_id="ask-"+m,store="ask1.db") as run:
            async def tick():
                for i in range(20): await asyncio.sleep(.1)
                return "ticked"
            print(await asyncio.gather(run.ask("Publish?",["yes","no"]), run.step("tick",tick)))
    asyncio.run(main())
else:
    with holdfast.run("ask1",run_id="ask-"+m,store="ask1.db") as run:
        if m=="free": print(run.ask("Name?"))
        elif m=="timeout": print(run.ask("Publish?",["yes","no"],timeout=1.5,default="no"))
        elif m=="two":
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(2) as p: print(list(p.map(lambda q: run.ask(q,["yes","no"]),["Q1?","Q2?"])))
        elif m=="retry":
            def bad(): raise ValueError("no")
            run.step("bad",bad,retry=holdfast.Retry(5,wait=30))
        elif m=="long":
            run.step("long",time.sleep,4); run.step("after",int,1)
        else: print(run.ask("Publish?",["yes","no"]))
